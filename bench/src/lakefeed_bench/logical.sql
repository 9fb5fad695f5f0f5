-- The columns of the records, one expression per paragraph.

concat('6ba7b810-9dad-11d1-80b4-', lpad(hex(id), 12, '0')) AS id

date_add(DATE'2020-01-01', cast(id % 3000 AS INT)) AS day

timestamp_micros(1700000000000000 + id * 1234567) AS created

timestamp_millis(1700000000000 + id * 1234) AS seen

cast(timestamp_micros(1700000000000000 + id * 7654321) AS TIMESTAMP_NTZ) AS opens

cast(id % 86400000 AS INT) AS lasted

cast(id % 10000000 / 100 AS DECIMAL(10, 2)) AS amount

cast(id * 1.2345 AS DECIMAL(18, 4)) AS balance

cast(id * 123456789.123456 AS DECIMAL(30, 6)) AS rate

if(id % 2 = 0, null, timestamp_micros(1700000000000000 + id)) AS changed

if(id % 3 = 0, null, DATE'2026-01-31') AS due
