-- Without its entries, work that is done and not settled would be done again.
LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE;

DO $$
DECLARE
    valid bigint := (
        SELECT count(*) FROM ledger WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000
    );
BEGIN
    IF valid > 0 THEN
        RAISE EXCEPTION '% entries of punctual.ledger keep work from being done twice: settle it and delete them first', valid;
    END IF;
END
$$;

DROP TABLE ledger;
