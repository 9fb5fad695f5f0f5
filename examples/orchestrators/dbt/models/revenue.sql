select customer, count(*) as orders, sum(amount) as revenue
from {{ source('shop', 'purchases') }}
group by customer
