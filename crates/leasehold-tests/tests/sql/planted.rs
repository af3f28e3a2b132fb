//! Tables that another role puts into the place of ours at the worst moment: while a client creates them, after they were
//! dropped under it, or in a schema that comes earlier in its search path.

use leasehold::engine::Query;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use mysql_async::prelude::Queryable;
use tokio_postgres::NoTls;

use super::roles::{STEAL, nothing_ran, plant, refused, with_mallory};

/// The lock under which clients create the tables: its number is in the source, and every role may take it.
const CREATING: &str = "7811887326217331";

/// A connection of `mallory`, as a program of its own would have it.
async fn mallory(server: &Postgres) -> tokio_postgres::Client {
    let config = server.url().replace("lab@", "mallory@");
    let (client, connection) = tokio_postgres::connect(&config, NoTls)
        .await
        .expect("connected");
    drop(tokio::spawn(connection));
    client
}

fn trigger(on: &str) -> String {
    format!(
        "{STEAL} CREATE TRIGGER steal BEFORE INSERT OR UPDATE ON {on} FOR EACH ROW EXECUTE FUNCTION steal();"
    )
}

async fn lock_and_release(client: &Client) {
    let guard = client.mutex("x").lock().await.expect("locked");
    let _ = guard.release().await.expect("released");
}

/// The clients are a superuser's and one of a role that has nothing to do with the planter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_planted_while_a_client_waits_to_create_them_are_refused() {
    for user in ["lab@", "app@"] {
        let server = with_mallory();
        let theirs = mallory(&server).await;
        let lock = |word: &str| format!("SELECT pg_advisory_{word}({CREATING})");
        theirs.batch_execute(&lock("lock")).await.expect("allowed");
        let url = server.url().replace("lab@", user);
        let connecting = tokio::spawn(async move { refused(&url).await });
        until("the client waits for the lock", || {
            let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
            match server.sql(waits).as_str() {
                "1" => Ok(()),
                other => Err(other.to_owned()),
            }
        });
        plant(&server, &trigger("leasehold_meta"));
        theirs.batch_execute(&lock("unlock")).await.expect("held");
        let error = connecting.await.expect("refused");
        assert!(error.contains("prefix=locks.leasehold_"), "{error}");
        nothing_ran(&server);
        // Nothing is left of the client's own attempt.
        let ours = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'leasehold%' AND tableowner <> 'mallory'";
        assert_eq!(server.sql(ours), "0");
    }
}

/// The line's table is missing, so the client makes it anew; the one for its first row is another role's by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_planted_under_a_running_client_are_refused_when_it_makes_them_anew() {
    let server = with_mallory();
    let client = leasehold::connect(&server.url()).await.expect("made");
    lock_and_release(&client).await;
    let names = server
        .sql("SELECT string_agg(tablename, ', ') FROM pg_tables WHERE tablename LIKE 'leasehold%'");
    let _ = server.sql(&format!("DROP TABLE {names}"));
    plant(&server, &trigger("leasehold_meta"));
    let _ = server.sql("DROP TABLE leasehold_line, leasehold_session");
    let error = client.mutex("x").try_lock().await.expect_err("planted");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    nothing_ran(&server);
}

/// A schema with the name of the client's role comes first in its search path: another role may make it at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_client_stays_in_the_schema_that_it_looked_at() {
    let server = with_mallory();
    let _ = server.sql("GRANT CREATE ON DATABASE postgres TO mallory");
    let url = server.url().replace("lab@", "app@");
    let (client, other) = (
        leasehold::connect(&url).await.expect("made"),
        leasehold::connect(&url).await.expect("found"),
    );
    lock_and_release(&client).await;
    let schema = leasehold::sql::schema("postgres", "app.leasehold_").expect("a schema");
    let triggers = ["line", "session", "claim", "mail", "meta"].map(|table| {
        let name = format!("CREATE TRIGGER steal BEFORE INSERT OR UPDATE ON app.leasehold_{table}");
        format!("{name} FOR EACH ROW EXECUTE FUNCTION app.steal();")
    });
    let _ = server.sql(&format!(
        "SET ROLE mallory; CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO PUBLIC; {schema} {} {} \
         GRANT ALL ON ALL TABLES IN SCHEMA app TO PUBLIC; GRANT ALL ON ALL SEQUENCES IN SCHEMA app TO PUBLIC",
        STEAL.replace("FUNCTION steal", "FUNCTION app.steal"),
        triggers.concat()
    ));
    let held = client.mutex("x").lock().await.expect("locked");
    assert!(other.mutex("x").try_lock().await.expect("asked").is_none());
    let waits = tokio::spawn(async move { other.mutex("x").lock().await });
    until("the other waits, in our tables", || {
        match server
            .sql("SELECT count(*) FROM public.leasehold_claim")
            .as_str()
        {
            "2" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    assert_eq!(client.inspect(&Query::all()).await.expect("seen").len(), 1);
    let _ = held.release().await.expect("released");
    drop(waits.await.expect("no panic").expect("granted"));
    nothing_ran(&server);
    // One that comes later finds the planted ones, and does nothing with them.
    let error = refused(&url).await;
    assert!(error.contains("prefix=locks.leasehold_"), "{error}");
    let ours = leasehold::connect(&format!("{url}?prefix=public.leasehold_")).await;
    lock_and_release(&ours.expect("ours")).await;
    nothing_ran(&server);
}

/// On MariaDB a view may run a function with the rights of the client. A table that is locked holds the client up while the
/// view is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_planted_while_a_client_of_mariadb_creates_is_refused() {
    let server = MariaDb::start();
    let _ = server.sql(
        "CREATE TABLE lab.loot (who TEXT); CREATE USER mallory@'%' IDENTIFIED BY 'secret'; \
         GRANT SELECT, INSERT, CREATE, CREATE VIEW, CREATE ROUTINE, LOCK TABLES ON lab.* TO mallory@'%'",
    );
    let theirs = server.url().replace("root@", "mallory:secret@");
    let conn = async || {
        mysql_async::Conn::from_url(&theirs)
            .await
            .expect("connected")
    };
    let (mut locker, mut maker) = (conn().await, conn().await);
    let run = async |conn: &mut mysql_async::Conn, statement: &str| {
        let done = conn.query_drop(statement).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    };
    run(
        &mut locker,
        "CREATE TABLE leasehold_line (x INT) ENGINE = InnoDB",
    )
    .await;
    run(&mut locker, "LOCK TABLES leasehold_line WRITE").await;
    let url = server.url();
    let connecting = tokio::spawn(async move { refused(&url).await });
    until("the client waits for the table", || {
        let waits = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata%'";
        match server.sql(waits).as_str() {
            "1" => Ok(()),
            other => Err(format!("{other}: {}", server.sql("SHOW PROCESSLIST"))),
        }
    });
    for statement in [
        "CREATE FUNCTION peek() RETURNS INT SQL SECURITY INVOKER \
         BEGIN INSERT INTO lab.loot VALUES (CURRENT_USER()); RETURN 2; END",
        "CREATE TABLE hidden (only_row BIGINT PRIMARY KEY, version BIGINT, floor BIGINT, floor_at BIGINT, boot TEXT)",
        "CREATE SQL SECURITY INVOKER VIEW leasehold_meta AS SELECT * FROM hidden WHERE version = peek() WITH CHECK OPTION",
    ] {
        run(&mut maker, statement).await;
    }
    run(&mut locker, "UNLOCK TABLES").await;
    let error = connecting.await.expect("refused");
    assert!(error.contains("leasehold_meta is a view"), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM lab.loot"), "0");
}
