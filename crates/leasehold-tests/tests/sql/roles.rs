//! Other roles of the same database: their tables and messages must not become code, grants or losses of ours.

use leasehold::engine::{Engine, Identity, Sql, Url};
use leasehold::{ErrorKind, Name};
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::pgbouncer::PgBouncer;
use leasehold_testkit::servers::postgres::Postgres;

use super::lockers::{fence, in_line, locker};

pub(super) async fn refused(url: &str) -> String {
    let error = leasehold::connect(url).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    error.to_string()
}

/// A server on which `mallory` may create in the schema that every client uses.
pub(super) fn with_mallory() -> Postgres {
    let server = Postgres::start();
    let _ = server.sql(
        "CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO PUBLIC; \
         CREATE TABLE public.loot (who text); GRANT ALL ON public.loot TO PUBLIC",
    );
    server
}

/// Makes our tables as `mallory`, and hangs something on them.
pub(super) fn plant(server: &Postgres, what: &str) {
    let schema = leasehold::sql::schema("postgres", "leasehold_").expect("a schema");
    let _ = server.sql(&format!("SET ROLE mallory; {schema} {what}"));
    let _ = server.sql(
        "DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE tableowner = 'mallory' \
         LOOP EXECUTE 'GRANT ALL ON ' || t || ' TO PUBLIC'; END LOOP; END $$",
    );
}

pub(super) const STEAL: &str = "CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN INSERT INTO public.loot VALUES (current_user); RETURN NEW; END $$;";

pub(super) fn nothing_ran(server: &Postgres) {
    assert_eq!(server.sql("SELECT count(*) FROM public.loot"), "0");
}

/// The client of a superuser, and of a role that has nothing to do with the planter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_planted_by_another_role_are_refused() {
    let triggers = ["session", "line", "meta"].map(|table| {
        format!(
            "CREATE TRIGGER steal BEFORE INSERT OR UPDATE ON leasehold_{table} \
             FOR EACH ROW EXECUTE FUNCTION steal();"
        )
    });
    let rule = "CREATE RULE steal AS ON INSERT TO leasehold_session DO ALSO \
         INSERT INTO public.loot VALUES (current_user)";
    for planted in [triggers.concat(), rule.to_owned(), String::new()] {
        let server = with_mallory();
        plant(&server, &format!("{STEAL} {planted}"));
        for user in ["lab@", "app@"] {
            let url = server.url().replace("lab@", user);
            for url in [url.clone(), format!("{url}?schema=check")] {
                let error = refused(&url).await;
                assert!(error.contains("prefix=locks.leasehold_"), "{error}");
            }
        }
        nothing_ran(&server);
        // The error advises this.
        let _ = server.sql("CREATE SCHEMA locks AUTHORIZATION app");
        let url = server.url().replace("lab@", "app@");
        let client = leasehold::connect(&format!("{url}?prefix=locks.leasehold_")).await;
        let guard = client.expect("ours").mutex("x").lock().await;
        let _ = guard.expect("locked").release().await.expect("released");
        nothing_ran(&server);
    }
}

/// A view in the place of a table, with the code in a function of the planter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_in_the_place_of_a_table_is_refused() {
    let server = with_mallory();
    let _ = server.sql(
        "SET ROLE mallory; CREATE FUNCTION peek() RETURNS bigint LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO public.loot VALUES (current_user); RETURN 2; END $$; \
         CREATE VIEW leasehold_meta AS SELECT peek() AS version; GRANT ALL ON leasehold_meta TO PUBLIC",
    );
    let error = refused(&server.url()).await;
    assert!(error.contains("leasehold_meta is a view"), "{error}");
    nothing_ran(&server);

    let server = MariaDb::start();
    let _ = server.sql(
        "CREATE TABLE lab.loot (who TEXT);\nDELIMITER //\n\
         CREATE FUNCTION lab.peek() RETURNS INT SQL SECURITY INVOKER \
         BEGIN INSERT INTO lab.loot VALUES (CURRENT_USER()); RETURN 2; END//",
    );
    let view =
        "CREATE SQL SECURITY INVOKER VIEW lab.leasehold_meta AS SELECT lab.peek() AS version";
    let _ = server.sql(view);
    let error = refused(&server.url()).await;
    assert!(error.contains("leasehold_meta is a view"), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM lab.loot"), "0");
}

/// A trigger on tables of our own is no part of them either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_are_refused() {
    let server = with_mallory();
    drop(leasehold::connect(&server.url()).await.expect("made"));
    let _ = server.sql(&format!(
        "{STEAL} CREATE TRIGGER steal BEFORE INSERT ON leasehold_session FOR EACH ROW EXECUTE FUNCTION steal()"
    ));
    let error = refused(&server.url()).await;
    assert!(error.contains("leasehold_session has a trigger"), "{error}");
    nothing_ran(&server);

    let server = MariaDb::start();
    drop(leasehold::connect(&server.url()).await.expect("made"));
    let _ = server.sql(
        "CREATE TABLE lab.loot (who TEXT); CREATE TRIGGER lab.steal BEFORE INSERT ON lab.leasehold_session \
         FOR EACH ROW INSERT INTO lab.loot VALUES (CURRENT_USER())",
    );
    let error = refused(&server.url()).await;
    assert!(error.contains("leasehold_session has a trigger"), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM lab.loot"), "0");
}

/// Tables of the database's owner, of a role that the client belongs to, and of an administrator are good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trusted_owners_are_accepted() {
    let server = with_mallory();
    let _ = server.sql("CREATE ROLE keepers; GRANT keepers TO app; CREATE ROLE landlord LOGIN");
    let _ = server.sql("ALTER DATABASE postgres OWNER TO landlord");
    let schema = leasehold::sql::schema("postgres", "leasehold_").expect("a schema");
    for owner in ["keepers", "landlord", "lab"] {
        let tables =
            "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE tablename LIKE 'leasehold%'";
        let _ = server.sql(&format!("SET ROLE {owner}; {schema}"));
        let names = server.sql(tables);
        let _ = server.sql(&format!("GRANT ALL ON {names} TO app"));
        let client = leasehold::connect(&server.url().replace("lab@", "app@")).await;
        let guard = client.expect(owner).mutex("x").lock().await;
        let _ = guard.expect("locked").release().await.expect("released");
        let _ = server.sql(&format!("DROP TABLE {names}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_for_granted() {
    for url in ["postgres://127.0.0.1/postgres", "mysql://127.0.0.1/lab"] {
        let error = leasehold::connect(url).await.expect_err("no user");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("names no user"), "{error}");
    }
    for prefix in ["", "locks.", ".x", "1x"] {
        let url = format!("postgres://app@127.0.0.1/x?prefix={prefix}");
        let error = leasehold::connect(&url).await.expect_err(prefix);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("prefix"), "{error}");
    }
}

/// A role that watches the server reads the ids in a waiter's statements, and sends it a grant of its own making; it sends
/// the holder an eviction, too. Neither is believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_notifications_are_not_believed() {
    let server = with_mallory();
    let _ = server.sql("GRANT pg_monitor TO mallory");
    let (holder, waiter) = (connect(&server).await, connect(&server).await);
    let held = holder.mutex("x").lock().await.expect("locked");
    let waits = tokio::spawn(async move { waiter.mutex("x").lock().await });
    let ids = "SELECT encode(session, 'hex') || ' ' || encode(id, 'hex') FROM leasehold_claim ORDER BY place";
    let ids = until("the other waits", || {
        let ids = server.sql(ids);
        let ids: Vec<_> = ids.lines().map(str::to_owned).collect();
        <[String; 2]>::try_from(ids).map_err(|ids| format!("{ids:?}"))
    });
    let [of_holder, of_waiter] = ids;
    let forge = |ids: &str, what: &str| {
        let channel = format!("leasehold_{}", &ids[..16]);
        let forged = format!("SET ROLE mallory; SELECT pg_notify('{channel}', '{ids} {what}')");
        let _ = server.sql(&forged);
    };
    let (by, why) = ("6d.", "6e.");
    for _ in 0..20 {
        forge(&of_waiter, &format!("granted {} 0", i64::MAX));
        forge(&of_waiter, "granted 7 0");
        forge(&of_holder, &format!("evicted {by} {why}"));
        forge(&of_holder, "expired");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(!waits.is_finished(), "a forged grant");
        assert_eq!(
            held.state(),
            leasehold::GuardState::Valid,
            "a forged eviction"
        );
    }
    let fence = held.fence();
    let _ = held.release().await.expect("released");
    let guard = waits.await.expect("no panic").expect("granted");
    assert!(guard.fence() > fence && guard.fence().get() < 1 << 53);
    // A true message arrives as fast as before.
    let evicted = holder.evict("x", "true").await.expect("evicted");
    assert_eq!(evicted, 1);
    let why = guard.lost().await;
    assert!(format!("{why:?}").contains("true"), "{why:?}");
}

async fn connect(server: &Postgres) -> leasehold::Client {
    leasehold::connect(&server.url()).await.expect("connected")
}

/// The text of no statement names an id: not of claims, releases, heartbeats, evictions, cleaning, nor of a crowd. The
/// server's own log of statements is what a role that watches it could read at best.
#[test]
fn ids_are_bound() {
    let server = Postgres::with(&[
        "logging_collector=on",
        "log_filename=all",
        "log_statement=all",
        "log_parameter_max_length=0",
    ]);
    let pooler = PgBouncer::before(&server, 3);
    let said = || server.sql("SELECT pg_read_file('log/all')");
    for url in [server.url(), pooler.url()] {
        let mut lockers = [(); 4].map(|()| locker(&url, 3_000));
        let _ = fence(&lockers[0].ask("lock text"));
        let engine = Sql::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
        for (waiting, locker) in lockers.iter_mut().enumerate().skip(1) {
            locker.say("lock text");
            in_line(&engine, "text", waiting);
        }
        let beats = said().matches("NOWAIT").count();
        until("heartbeats", || match said().matches("NOWAIT").count() {
            more if more > beats + 8 => Ok(()),
            more => Err(more.to_string()),
        });
        for at in 1..4 {
            assert_eq!(lockers[at - 1].ask("release text"), "Released");
            let _ = fence(&lockers[at].hear());
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (name, who) = (
            Name::new("text").expect("a name"),
            Identity::of_this_process(),
        );
        let evicted = runtime.block_on(engine.evict(&name, None, &who, "why"));
        assert_eq!(evicted.expect("evicted"), 1);
        runtime.block_on(engine.clean()).expect("cleaned");
    }
    let said = said();
    for part in [
        "UPDATE \"public\".leasehold_line",
        "pg_notify",
        "leasehold_eviction",
        "leasehold_mail",
    ] {
        assert!(said.contains(part), "{part}");
    }
    // Those of a line that is idle, and of a crowd, are no secrets.
    let said = said
        .replace(&"0".repeat(32), "")
        .replace(&"f".repeat(32), "");
    for line in said.lines() {
        let runs = line.split(|c: char| !c.is_ascii_hexdigit());
        assert!(runs.map(str::len).max() < Some(32), "{line}");
    }
}
