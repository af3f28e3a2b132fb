//! Calls of the script for many claims: some claims to a call, all servers side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::client::Reply;
use super::super::error::Trouble;
use super::super::keys::{Bucket, Keys};
use super::script::Run;
use super::servers::Servers;
use crate::claim::Claim;

/// How many claims one call of the script is about: the server does nothing else meanwhile.
const AT_ONCE: usize = 100;

/// How many such calls a server gets side by side: others have their turn in between, and a server that is far away is
/// not waited for after each.
const SIDE_BY_SIDE: usize = 4;

/// How a call for some claims is made.
pub(super) type Make = fn(&Keys, &[&Claim]) -> Run;

/// Asks about all these claims, in their order, and tells each answer as it comes. A server that is silent, and a line that cannot be
/// done, cost only their own claims an answer. A call gets no longer than the patience.
pub(super) async fn each(
    servers: &Arc<Servers>,
    claims: &[Arc<Claim>],
    make: Make,
    patience: Duration,
    mut tell: impl FnMut(&Arc<Claim>, Result<Reply, Trouble>),
) {
    let mut groups = BTreeMap::<_, Vec<Arc<Claim>>>::new();
    for claim in claims {
        let group = servers.group(Bucket::of(&claim.name));
        groups.entry(group).or_default().push(claim.clone());
    }
    let (answer, mut answers) = mpsc::unbounded_channel();
    let mut calls = JoinSet::new();
    for (bucket, claims) in groups {
        let (servers, answer) = (servers.clone(), answer.clone());
        let _ = calls.spawn(async move {
            let mut parts = JoinSet::new();
            for part in claims.chunks(AT_ONCE) {
                if parts.len() == SIDE_BY_SIDE {
                    let _ = parts.join_next().await;
                }
                let (servers, part, answer) = (servers.clone(), part.to_vec(), answer.clone());
                let _ = parts.spawn(async move {
                    let called = call(&servers, bucket, &part, make);
                    let said = tokio::time::timeout(patience, called).await;
                    let said = said.unwrap_or_else(|_| vec![Err(Trouble::Silent); part.len()]);
                    for one in part.into_iter().zip(said) {
                        // The caller may have gone.
                        let _ = answer.send(one);
                    }
                });
            }
            while parts.join_next().await.is_some() {}
        });
    }
    drop(answer);
    while let Some((claim, said)) = answers.recv().await {
        tell(&claim, said);
    }
}

/// One call on the server that has these lines; one for each of them if that server cannot now, or another one has them.
async fn call(
    servers: &Arc<Servers>,
    bucket: Option<Bucket>,
    claims: &[Arc<Claim>],
    make: Make,
) -> Vec<Result<Reply, Trouble>> {
    let keys = &servers.config.keys;
    let these: Vec<_> = claims.iter().map(|claim| &**claim).collect();
    match together(servers, bucket, &make(keys, &these)).await {
        Ok(answers) => answers.into_iter().map(Reply::ok).collect(),
        // Of a slot that moves, each line may be here or there.
        Err(trouble) if trouble.is_passing() => {
            let mut answers = vec![Err(trouble); these.len()];
            let mut calls = JoinSet::new();
            for (at, claim) in these.iter().enumerate() {
                let (servers, bucket) = (servers.clone(), Bucket::of(&claim.name));
                let run = make(keys, &[claim]);
                let _ = calls.spawn(async move { (at, servers.run(bucket, &run).await) });
            }
            while let Some(Ok((at, answer))) = calls.join_next().await {
                answers[at] = answer;
            }
            answers
        }
        Err(trouble) => vec![Err(trouble); claims.len()],
    }
}

async fn together(
    servers: &Servers,
    bucket: Option<Bucket>,
    run: &Run,
) -> Result<Vec<Reply>, Trouble> {
    let link = servers.link(bucket).await?;
    let ran = servers.run_on(&link, std::slice::from_ref(run)).await;
    let answers = ran.and_then(|mut runs| {
        let only = runs.pop();
        only.unwrap_or_else(|| Err(Trouble::strange("no answer")))
    });
    if let (Some(bucket), Err(trouble @ Trouble::Down(_))) = (bucket, &answers) {
        // The next call goes to the server that has the slot by now.
        let _ = servers.elsewhere(&link, bucket, trouble).await;
    }
    answers
}
