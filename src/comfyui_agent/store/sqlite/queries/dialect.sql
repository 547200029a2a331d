-- What SQLite writes in its own way.

-- part: now
strftime('%Y-%m-%d %H:%M:%f', 'now')

-- part: in_seconds(seconds)
strftime('%Y-%m-%d %H:%M:%f', 'now', {seconds} || ' seconds')

-- part: seconds_ago(seconds)
strftime('%Y-%m-%d %H:%M:%f', 'now', -({seconds}) || ' seconds')

-- part: seconds_since(moment)
(julianday('now') - julianday({moment})) * 86400.0

-- part: half_an_hour_before(moment)
strftime('%Y-%m-%d %H:%M:%f', {moment}, '-30 minutes')

-- part: index(name)
 INDEXED BY {name}

-- part: rank(priority)
max(coalesce({priority}, -1e18), -1e18)

-- part: numbers(list)
SELECT value FROM json_each({list})

-- part: texts(list)
SELECT value FROM json_each({list})

-- part: listed_numbers(list)
(SELECT key, value FROM json_each({list})) AS listed

-- part: listed_texts(list)
(SELECT key, value FROM json_each({list})) AS listed

-- part: json_list(value)
json_group_array({value})

-- part: instr
instr

-- part: lower(value)
lower({value})

-- part: greatest
max

-- part: newline
char(10)

-- part: last_character
char(1114111)

-- part: place
rowid

-- part: whole_number
real

-- part: lock(table)
-- part: hold(table)
-- part: try_lock(name)
true

-- part: alone(name)
true

-- part: is_settled
true

-- part: oldest_kept(count)
-- Ids that came from PostgreSQL have gaps between them.
SELECT CASE WHEN EXISTS (SELECT 1 FROM about WHERE key = 'moved_from')
    THEN (SELECT id FROM events WHERE id > 0 ORDER BY id DESC LIMIT 1 OFFSET {count})
    ELSE (SELECT max(id) FROM events) - {count} END

-- part: has_no_younger(moment)
true

-- part: moment(value)
{value}

-- part: in_order(columns)

-- part: is_open
attempts.outcome IS NULL

-- part: is_among(ids)
IN ({texts({ids})})
