DROP FUNCTION history_ahead(bigint, integer, bigint);
