//! `inspect` of the servers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::error::Trouble;
use super::super::inspect::names;
use super::super::keys::Bucket;
use super::super::words::who;
use super::answer::{Shown, shown};
use super::script::Run;
use super::servers::{Answers, Servers};
use crate::engine::{ClaimView, LineView, Query};
use crate::name::Name;

/// Answers a query: one line, or all in use.
pub(super) async fn look(servers: &Servers, query: &Query) -> Result<Vec<LineView>, Trouble> {
    match &query.name {
        Some(name) => Ok(line(servers, name).await?.into_iter().collect()),
        None => lines(servers).await,
    }
}

/// The line of one name; none if it is idle.
async fn line(servers: &Servers, name: &Name) -> Result<Option<LineView>, Trouble> {
    rest(servers, name, Vec::new(), 0).await
}

/// The pages of a line that are left.
async fn rest(
    servers: &Servers,
    name: &Name,
    mut claims: Vec<Shown>,
    mut after: u64,
) -> Result<Option<LineView>, Trouble> {
    loop {
        let run = Run::look(&servers.config.keys, name, after);
        let (page, next) = shown(servers.run(Bucket::of(name), &run).await?)?;
        claims.extend(page);
        if next <= after {
            return Ok(view(name, &claims));
        }
        after = next;
    }
}

/// Every line in use. A line that cannot be read, because a key below our prefix is of another program, is left out with
/// a warning.
async fn lines(servers: &Servers) -> Result<Vec<LineView>, Trouble> {
    let mut views = Vec::new();
    for link in servers.links().await? {
        let keys = &servers.config.keys;
        let names = names(&link, &keys.pattern(), |key| keys.name(key)).await?;
        let names: Vec<_> = names.into_iter().collect();
        for names in names.chunks(200) {
            let runs: Vec<_> = names.iter().map(|name| Run::look(keys, name, 0)).collect();
            for (name, answers) in names.iter().zip(servers.run_on(&link, &runs).await?) {
                match first_page(answers) {
                    Ok((claims, 0)) => views.extend(view(name, &claims)),
                    Ok((claims, after)) => views.extend(rest(servers, name, claims, after).await?),
                    Err(trouble) if trouble.is_of_the_line() => {
                        tracing::warn!(%name, ?trouble, "left out: its key cannot be read");
                    }
                    Err(trouble) => return Err(trouble),
                }
            }
        }
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    views.dedup_by(|a, b| a.name == b.name);
    Ok(views)
}

fn first_page(answers: Result<Answers, Trouble>) -> Result<(Vec<Shown>, u64), Trouble> {
    let answer = answers?.pop();
    shown(answer.ok_or_else(|| Trouble::strange("no answer"))?)
}

fn view(name: &Name, claims: &[Shown]) -> Option<LineView> {
    let views = claims.iter().map(|claim| {
        let (since, until) = (time(claim.since), time(claim.until));
        let view = ClaimView::new(claim.fence, claim.mode, who(&claim.who), since, until);
        let lease = Duration::from_micros(claim.lease);
        view.lease(lease).held_by_fence()
    });
    (!claims.is_empty()).then(|| LineView::new(name.clone(), views))
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
