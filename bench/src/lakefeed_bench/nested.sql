-- The columns of the records, one expression per paragraph.

id

named_struct(
        'name', concat('customer ', id), 'email', if(id % 3 = 0, null, concat(id, '@example.org')),
        'address', named_struct('street', concat(id % 500, ' Main Street'), 'city', 'Springfield',
            'zip', if(id % 2 = 0, null, '12345'))) AS customer

transform(sequence(1, 1 + cast(id % 4 AS INT)), at -> named_struct(
        'sku', concat('sku-', at), 'quantity', at, 'price', at * 1.5D,
        'note', if(at % 2 = 0, null, 'a note'))) AS items

map('channel', 'web', 'campaign', concat('c', id % 10)) AS labels

if(id % 4 = 0, null, named_struct(
        'member0', if(id % 4 = 1, named_struct('number', '4111111111111111', 'month', 7), null),
        'member1', if(id % 4 = 2, named_struct('account', 'DE00123456780000000000'), null),
        'member2', if(id % 4 = 3, 12.5D, null))) AS payment

element_at(array('OPEN', 'PAID', 'SENT'), 1 + cast(id % 3 AS INT)) AS status

if(id % 2 = 0, null, 0.25D) AS discount
