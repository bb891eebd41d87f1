UPDATE inbox_watch SET payload_bytes = $1 WHERE payload_bytes <> $1
