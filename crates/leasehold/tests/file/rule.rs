//! Random histories, compared with the rule.

use super::*;

/// One step of a random history of two sessions.
#[derive(Debug, Clone)]
enum Step {
    Claim {
        session: usize,
        name: usize,
        mode: Mode,
        lease: u64,
        waits: bool,
    },
    Again {
        nth: usize,
    },
    Heartbeat {
        nth: usize,
    },
    Release {
        nth: usize,
        used: u32,
    },
    Evict {
        name: usize,
    },
    Pass {
        micros: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![
        Just(Mode::Mutex),
        Just(Mode::Read),
        Just(Mode::Write),
        (1..3_u32).prop_map(|count| Mode::Permits { count, of: 2 }),
    ];
    let step = prop_oneof![
        4 => (0..2_usize, 0..2_usize, mode, 1..4_000_u64, any::<bool>())
            .prop_map(|(session, name, mode, lease, waits)| Step::Claim { session, name, mode, lease, waits }),
        1 => (0..9_usize).prop_map(|nth| Step::Again { nth }),
        3 => (0..9_usize).prop_map(|nth| Step::Heartbeat { nth }),
        4 => (0..9_usize, 0..300_u32).prop_map(|(nth, used)| Step::Release { nth, used }),
        1 => (0..2_usize).prop_map(|name| Step::Evict { name }),
        2 => (1..3_000_000_u64).prop_map(|micros| Step::Pass { micros }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Feeds one history to the engine and to the rule itself; every answer must be the same.
async fn agree(steps: Vec<Step>) {
    let (dir, clock) = (temp(), Clock::simulated());
    let engine = File::new(dir.path(), clock.clone()).unwrap();
    let sessions = [session(&engine).await.0, session(&engine).await.0];
    let ids = [SessionId::from_u128(1), SessionId::from_u128(2)];
    let names = ["a", "A"].map(|name| Name::new(name).unwrap());
    let mut lines = [Line::default(), Line::default()];
    let mut claims: Vec<(usize, usize, Claim)> = Vec::new();
    for step in steps {
        let at = Moment {
            now: clock.now(),
            floor: clock.wall(),
        };
        match &step {
            Step::Claim {
                session,
                name,
                mode,
                lease,
                waits,
            } => {
                let mut claim =
                    Claim::new(names[*name].clone(), *mode, Duration::from_millis(*lease));
                claim.waits = *waits;
                let (expected, _) = lines[*name].claim(&claim.ask(ids[*session]), at);
                let answer = sessions[*session].claim(&claim).await;
                assert_eq!(answer.is_err(), expected.is_err(), "{step:?}: {answer:?}");
                if let (Ok(answer), Ok(expected)) = (answer, expected) {
                    assert_eq!(answer, expected, "{step:?}");
                }
                claims.push((*session, *name, claim));
            }
            Step::Again { nth } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].claim(&claim.ask(ids[*session]), at);
                let answer = sessions[*session].claim(claim).await;
                assert_eq!(answer.ok(), expected.ok(), "{step:?}");
            }
            Step::Heartbeat { nth } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].heartbeat(claim.id, at);
                let answer = beat(&*sessions[*session], &[Arc::new(claim.clone())]).await;
                assert_eq!(answer, [expected], "{step:?}");
            }
            Step::Release { nth, used } if *nth < claims.len() => {
                let (session, name, claim) = &claims[claims.len() - 1 - nth];
                let (expected, _) = lines[*name].release(claim.id, *used, at);
                let answer = sessions[*session].release(claim, *used).await;
                assert_eq!(answer.unwrap(), expected, "{step:?}");
            }
            Step::Evict { name } => {
                let changes = lines[*name].evict(None, at);
                let expected = changes
                    .iter()
                    .filter(|change| change.what == What::Evicted)
                    .count();
                let by = Identity::of_this_process();
                let answer = engine
                    .evict(&names[*name], None, &by, "a test")
                    .await
                    .unwrap();
                assert_eq!(answer as usize, expected, "{step:?}");
            }
            Step::Pass { micros } => tokio::time::advance(Duration::from_micros(*micros)).await,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn agrees_with_the_rule_on_random_histories(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(agree(steps));
    }
}
