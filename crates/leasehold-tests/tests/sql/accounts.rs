//! Accounts of a database: the least rights that are enough, an account that may only read, one that may create beside the
//! tables, and other users of the machine.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use leasehold::engine::{Query, Sql, Url};
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState, Name, Ran, store};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::skip;
use mysql_async::prelude::Queryable;

const DOCS: &str = include_str!("../../../../docs/security.md");

/// The statements after a word of the documentation.
fn documented(after: &str) -> String {
    let (_, block) = DOCS.split_once(after).expect("docs/security.md says it");
    let (_, block) = block.split_once("```sql\n").expect("statements");
    let block = block.split("```").next().expect("their end");
    block.replace("'PASSWORD'", "'secret'")
}

async fn client(url: &str) -> Client {
    let connected = ConnectOptions::new()
        .lease(Duration::from_millis(1_500))
        .connect(url)
        .await;
    connected.expect(url)
}

/// Everything that clients do with locks.
async fn all_of_it(url: &str) {
    let (a, b) = (client(url).await, client(url).await);
    let guard = a.mutex("x").strict().lock().await.expect("free");
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let mutex = b.mutex("x").strict();
        waiters.push(tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            let _ = guard.release().await.expect("released");
        }));
    }
    let before = guard.deadline();
    let query = Query::name(Name::new("x").expect("a name"));
    eventually("they wait and it is renewed", async || {
        let lines = a.inspect(&query).await.expect("allowed");
        let waiting = lines.first().is_some_and(|line| !line.waiters.is_empty());
        (waiting && guard.deadline() > before)
            .then_some(())
            .ok_or(format!("{lines:?}"))
    })
    .await;
    assert_eq!(a.inspect(&Query::all()).await.expect("allowed").len(), 1);
    let evicted = a.evict("x", "a test").await;
    assert_eq!(evicted.expect("allowed"), 1);
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    let rw = a.rwlock("rw");
    let write = rw.write().await.expect("free");
    drop(write.downgrade().await.expect("a reader"));
    drop(a.semaphore("s", 2).acquire().await.expect("free"));
    drop(b.rwlock("rw").read().await.expect("free"));
    let engine = Sql::from_url(&Url::parse(url).expect("a URL")).expect("an engine");
    engine.clean().await.expect("allowed");
}

/// Values of a store: an account that reads the tables sees them, and one that writes them says what was done.
async fn values(app: &str, reader: &str) {
    const LONG: Duration = Duration::from_secs(600);
    let client = client(app).await;
    let once = client.once("mail:7", LONG);
    let ran = once
        .run(async |_| Ok::<_, leasehold::Error>("sent to 8"))
        .await;
    assert!(matches!(ran, Ok(Ran::Done(_))), "{ran:?}");
    client.stock("item", 2).refill(3).await.expect("allowed");
    let key = Name::new("once:mail:7").expect("a name");
    let (sees, writes) = (store::open(reader), store::open(app));
    let (sees, writes) = (sees.expect("a store"), writes.expect("a store"));
    let seen = sees.get(&key).await.expect("allowed").expect("there");
    assert!(seen.value.ends_with(b"sent to 8"));
    let denied = sees.put(&key, seen.fence, Some(b"x"), None).await;
    assert_eq!(denied.expect_err("it reads").kind(), ErrorKind::Denied);
    let forged = Some(&b"done mallory\nnever"[..]);
    let put = writes.put(&key, seen.fence, forged, None).await;
    assert!(put.expect("allowed").is_ok());
    let ran = once.run(async |_| Ok::<_, leasehold::Error>("")).await;
    match ran.expect("told") {
        Ran::AlreadyDone(done) => assert_eq!(done.by, "mallory"),
        other => panic!("{other:?}"),
    }
}

/// An account that may only read sees the locks and changes nothing.
async fn only_reads(owner: &str, reader: &str) {
    let holder = client(owner).await;
    let guard = holder.mutex("y").lock().await.expect("free");
    let opened = ConnectOptions::new().connect(reader).await;
    let denied = match opened {
        Err(denied) => denied,
        Ok(reader) => reader.mutex("z").try_lock().await.expect_err("read only"),
    };
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(guard.state(), GuardState::Valid);
    let _ = guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_on_postgres_are_enough_and_a_reader_changes_nothing() {
    let server = Postgres::start();
    let _ = server.sql("CREATE SCHEMA locks");
    let schema = leasehold::sql::schema("postgres", "locks.leasehold_").expect("a schema");
    let _ = server.sql(&schema);
    let _ = server.sql(&documented("## PostgreSQL"));
    let _ = server.sql(
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA locks TO reader; \
         GRANT SELECT ON ALL TABLES IN SCHEMA locks TO reader",
    );
    let options = "prefix=locks.leasehold_&schema=check";
    let as_role = |role: &str| format!("{}?{options}", server.url().replace("lab@", role));
    let app = as_role("app:secret@");
    all_of_it(&app).await;
    only_reads(&app, &as_role("reader@")).await;
    values(&app, &as_role("reader@")).await;
    let statements = [
        "DELETE FROM locks.leasehold_line",
        "UPDATE locks.leasehold_claim SET fence = 1",
        "SELECT 1 FROM locks.leasehold_line FOR UPDATE",
        "LOCK TABLE locks.leasehold_line IN ROW EXCLUSIVE MODE",
    ];
    for statement in statements {
        let refused = server.try_sql(&format!("SET ROLE reader; {statement}"));
        assert!(refused.expect_err(statement).contains("permission denied"));
    }
    let refused = server.try_sql("SET ROLE app; CREATE TABLE locks.mine (x int)");
    assert!(
        refused
            .expect_err("no CREATE")
            .contains("permission denied")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_on_mariadb_are_enough_and_a_reader_changes_nothing() {
    let server = MariaDb::start();
    let _ = server.sql("CREATE DATABASE locks");
    let schema = leasehold::sql::schema("mysql", "leasehold_").expect("a schema");
    let _ = server.sql(&format!("USE locks; {schema}"));
    let _ = server.sql(&documented("## MariaDB"));
    let _ = server.sql(
        "CREATE USER reader@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON locks.* TO reader@'%'",
    );
    let as_user = |user: &str| {
        let url = server
            .url()
            .replace("root@", user)
            .replace("/lab", "/locks");
        format!("{url}?schema=check")
    };
    let app = as_user("app:secret@");
    all_of_it(&app).await;
    only_reads(&app, &as_user("reader:secret@")).await;
    values(&app, &as_user("reader:secret@")).await;
}

/// Statements are in the list of processes with the ids in them. They are of no use to an account that may not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_mariadb_that_watches_statements_changes_nothing() {
    let server = MariaDb::start();
    let _ = server
        .sql("CREATE USER watcher@'%' IDENTIFIED BY 'secret'; GRANT PROCESS ON *.* TO watcher@'%'");
    let holder = client(&server.url()).await;
    let guard = holder.mutex("x").lock().await.expect("free");
    let url = server.url().replace("root@", "watcher:secret@");
    let url = url.trim_end_matches("/lab");
    let conn = mysql_async::Conn::from_url(url).await;
    let mut conn = conn.expect("connected");
    let listed: Vec<mysql_async::Row> = conn
        .query("SELECT ID, USER FROM information_schema.PROCESSLIST WHERE USER = 'root'")
        .await
        .expect("it may watch");
    assert!(!listed.is_empty(), "it sees the holder's connections");
    let id: u64 = listed[0].get(0).expect("a number");
    for statement in [
        "DELETE FROM lab.leasehold_claim".to_owned(),
        "SELECT * FROM lab.leasehold_claim".to_owned(),
        format!("KILL {id}"),
    ] {
        let denied = conn.query_drop(&statement).await;
        assert!(denied.is_err(), "{statement}");
    }
    assert_eq!(guard.state(), GuardState::Valid);
    let _ = guard.release().await.expect("released");
}

/// What may be created in a schema that the search path of all roles has: for each operator and function, one that fits
/// every pair of types better than the system's own, where the system has none for exactly that pair.
const TRAPS: &str = r#"
CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO mallory;
CREATE SCHEMA locks AUTHORIZATION app;
CREATE TABLE public.loot (who text, what text); GRANT ALL ON public.loot TO PUBLIC;
SET ROLE mallory;
DO $$ DECLARE
  types regtype[] := '{int2,int4,int8,numeric,float8,text,varchar,name,bytea,bool,oid,timestamptz}';
  signs text[] := '{+,-,*,=,<>,<,<=,>,>=,||,&}';
  words text[] := '{encode,convert_to,pg_notify,get_byte,date_part,substr,to_regclass,pg_get_userbyid,count,max,min}';
  body text; word text; a regtype; b regtype; result regtype; n int := 0;
BEGIN
  FOREACH a IN ARRAY types LOOP
    FOREACH b IN ARRAY types LOOP
      FOREACH word IN ARRAY signs LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprname = word AND oprleft = a AND oprright = b
          AND oprnamespace = 'pg_catalog'::regnamespace);
        n := n + 1;
        result := CASE WHEN word IN ('=','<>','<','<=','>','>=') THEN 'bool'::regtype ELSE a END;
        body := format('BEGIN INSERT INTO public.loot VALUES (current_user, %L); RETURN NULL; END',
          format('%s %s %s', a, word, b));
        EXECUTE format('CREATE FUNCTION public.trap_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', n, a, b, result, body);
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap_%s)', word, a, b, n);
      END LOOP;
      FOREACH word IN ARRAY words LOOP
        body := format('BEGIN INSERT INTO public.loot VALUES (current_user, %L); RETURN NULL; END',
          format('%s(%s, %s)', word, a, b));
        IF NOT EXISTS (SELECT FROM pg_proc WHERE proname = word AND proargtypes::text = format('%s %s', a::oid, b::oid)
          AND pronamespace = 'pg_catalog'::regnamespace) THEN
          EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS text LANGUAGE plpgsql AS %L', word, a, b, body);
        END IF;
        IF a = b AND NOT EXISTS (SELECT FROM pg_proc WHERE proname = word AND proargtypes::text = a::oid::text
          AND pronamespace = 'pg_catalog'::regnamespace) THEN
          EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', word, a, body);
        END IF;
      END LOOP;
    END LOOP;
  END LOOP;
END $$"#;

/// Our tables are in a schema of our own, and another role lays traps in the one that the search path also has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operator_and_no_function_of_another_role_is_called() {
    let server = Postgres::start();
    let _ = server.sql(TRAPS);
    let loot =
        || server.sql("SELECT string_agg(DISTINCT who || ': ' || what, ', ') FROM public.loot");
    // They work: a careless statement falls into them.
    let _ =
        server.sql("SET ROLE app; SELECT 1::numeric + 1::bigint, convert_to('x'::text, 'UTF8')");
    assert!(loot().contains("app: "), "{}", loot());
    let _ = server.sql("DELETE FROM public.loot");
    let url = server.url().replace("lab@", "app@");
    all_of_it(&format!("{url}?prefix=locks.leasehold_")).await;
    assert_eq!(loot(), "");
    // The look at whose tables these are is careful too, also when it finds some of the other role.
    let _ = server.sql("SET ROLE mallory; CREATE TABLE public.leasehold_meta (version bigint)");
    for url in [&url, &server.url()] {
        let denied = ConnectOptions::new()
            .connect(url)
            .await
            .expect_err("planted");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    }
    assert_eq!(loot(), "");
}

/// Code that another program put into a file of SQLite is not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_in_a_file_of_sqlite_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    drop(client(&url).await);
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).expect("opened");
    let planted = "CREATE TABLE loot (x); CREATE TRIGGER steal AFTER INSERT ON leasehold_session \
                   BEGIN INSERT INTO loot VALUES (1); END";
    file.execute_batch(planted).expect("planted");
    let denied = ConnectOptions::new()
        .connect(&url)
        .await
        .expect_err("planted");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let loot = file.query_row("SELECT count(*) FROM loot", [], |row| row.get::<_, i64>(0));
    assert_eq!(loot.expect("a number"), 0);
}

/// A user who may read the file and not write it takes no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_who_may_only_read_the_file() {
    if skip::asked_for("two-users") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let url = format!("sqlite:{}", path("locks.db").display());
    let holder = client(&url).await;
    let guard = holder.mutex("x").lock().await.expect("free");
    let mode = |file: &std::path::Path, mode| {
        let set = std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode));
        set.expect("changed");
    };
    mode(dir.path(), 0o755);
    for file in std::fs::read_dir(dir.path()).expect("a directory") {
        mode(&file.expect("a file").path(), 0o644);
    }
    let _ = std::fs::copy(env!("CARGO_BIN_EXE_locker"), path("locker")).expect("copied");
    let mut theirs = Command::new("setpriv");
    let _ = theirs.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let theirs = Process::start(theirs.arg(path("locker")).args([url.as_str(), "1500"]));
    let refused = theirs.hear();
    assert!(refused.starts_with("error"), "{refused}");
    let _ = guard.release().await.expect("released");
}
