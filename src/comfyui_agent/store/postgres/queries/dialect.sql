-- What PostgreSQL writes in its own way. It needs no word about which index to use.

-- part: now
e3_now()

-- part: in_seconds(seconds)
e3_now() + CAST({seconds} AS double precision) * interval '1 second'

-- part: seconds_ago(seconds)
e3_now() - CAST({seconds} AS double precision) * interval '1 second'

-- part: seconds_since(moment)
CAST(extract(epoch FROM e3_now() - {moment}) AS double precision)

-- part: half_an_hour_before(moment)
{moment} - interval '30 minutes'

-- part: index(name)

-- part: rank(priority)
greatest({priority}, -1000000000000000000)

-- part: numbers(list)
SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST({list} AS json))

-- part: texts(list)
SELECT value FROM json_array_elements_text(CAST({list} AS json))

-- part: listed_numbers(list)
(SELECT key, CAST(value AS bigint) AS value
    FROM json_array_elements_text(CAST({list} AS json)) WITH ORDINALITY AS each(value, key)) AS listed

-- part: listed_texts(list)
(SELECT key, value FROM json_array_elements_text(CAST({list} AS json)) WITH ORDINALITY AS each(value, key)) AS listed

-- part: json_list(value)
CAST(coalesce(json_agg({value}), '[]') AS text)

-- part: instr
strpos

-- part: lower(value)
lower({value} COLLATE "C")

-- part: greatest
greatest

-- part: newline
chr(10)

-- part: last_character
chr(1114111)

-- part: place
place

-- part: whole_number
bigint

-- part: lock(table)
FOR UPDATE OF {table} SKIP LOCKED

-- part: hold(table)
FOR UPDATE OF {table}

-- part: try_lock(name)
e3_lock({name})

-- part: alone(name)
-- Waits for all transactions that are `beside` others under this name.
pg_advisory_xact_lock(hashtextextended({name}, 0))

-- part: is_settled
-- No open transaction can still add an event before this one.
events.id < e3_event_id(e3_oldest_open())

-- part: oldest_kept(count)
SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET {count}

-- part: has_no_younger(moment)
-- No open transaction can still add an earlier one: those draw their ids and times after they began.
{moment} < coalesce((
    SELECT min(xact_start) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL), 'infinity')

-- part: moment(value)
CAST({value} AS timestamptz)

-- part: in_order(columns)
ORDER BY {columns}

-- part: is_open
-- An attempt that may be at its server, in the words of idx_attempts_at_server. By its job or id, `outcome IS NULL` is said.
coalesce(attempts.outcome, '') = ''

-- part: is_among(ids)
-- Whatever the statistics say, the index is asked for each.
= ANY (ARRAY({texts({ids})}))
