//! What `inspect` shows of the servers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answer::{Shown, shown};
use super::client::Reply;
use super::error::Trouble;
use super::keys::Bucket;
use super::scan;
use super::script::Run;
use super::servers::Servers;
use super::session::who;
use crate::engine::{ClaimView, LineView, Query};
use crate::name::Name;

/// What is asked for: one line, or all in use.
pub(super) async fn look(servers: &Servers, query: &Query) -> Result<Vec<LineView>, Trouble> {
    match &query.name {
        Some(name) => Ok(line(servers, name).await?.into_iter().collect()),
        None => lines(servers).await,
    }
}

/// The line of one name; none if it is idle.
async fn line(servers: &Servers, name: &Name) -> Result<Option<LineView>, Trouble> {
    let run = Run::look(servers.config.keys.line(name));
    view(name, servers.run(Bucket::of(name), &run).await?)
}

/// Every line in use.
async fn lines(servers: &Servers) -> Result<Vec<LineView>, Trouble> {
    let mut views = Vec::new();
    for link in servers.links().await? {
        let keys = &servers.config.keys;
        let names = scan::names(&link, &keys.pattern(), |key| keys.name(key)).await?;
        let names: Vec<_> = names.into_iter().collect();
        for names in names.chunks(200) {
            let runs: Vec<_> = names
                .iter()
                .map(|name| Run::look(keys.line(name)))
                .collect();
            for (name, answers) in names.iter().zip(servers.run_on(&link, &runs).await?) {
                let answer = answers?
                    .pop()
                    .ok_or_else(|| Trouble::strange("no answer"))?;
                views.extend(view(name, answer)?);
            }
        }
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    views.dedup_by(|a, b| a.name == b.name);
    Ok(views)
}

fn view(name: &Name, answer: Reply) -> Result<Option<LineView>, Trouble> {
    let claims = shown(answer)?;
    let views = claims.iter().map(|claim: &Shown| {
        let (since, until) = (time(claim.since), time(claim.until));
        ClaimView::new(claim.fence, claim.mode, who(&claim.who), since, until)
    });
    Ok((!claims.is_empty()).then(|| LineView::new(name.clone(), views)))
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
