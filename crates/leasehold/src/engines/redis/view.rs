//! What `inspect` shows of the servers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::Trouble;
use super::keys::Bucket;
use super::link::Link;
use super::script::{Run, Shown, shown};
use super::servers::Servers;
use super::session::who;
use super::wire::{Call, Reply};
use crate::engine::{ClaimView, LineView};
use crate::name::Name;

/// The line of one name; none if it is idle.
pub(super) async fn line(servers: &Servers, name: &Name) -> Result<Option<LineView>, Trouble> {
    let run = Run::look(servers.config.keys.line(name));
    let answers = servers.run(Bucket::of(name), &run).await?;
    view(name, answers.into_iter().next().unwrap_or_default())
}

/// Every line in use.
pub(super) async fn lines(servers: &Servers) -> Result<Vec<LineView>, Trouble> {
    let mut views = Vec::new();
    for link in servers.links().await? {
        let names = names(servers, &link).await?;
        for names in names.chunks(200) {
            let runs: Vec<_> = names
                .iter()
                .map(|name| Run::look(servers.config.keys.line(name)))
                .collect();
            for (name, answers) in names.iter().zip(servers.run_on(&link, &runs).await?) {
                views.extend(view(name, answers?.into_iter().next().unwrap_or_default())?);
            }
        }
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    views.dedup_by(|a, b| a.name == b.name);
    Ok(views)
}

async fn names(servers: &Servers, link: &Link) -> Result<Vec<Name>, Trouble> {
    let keys = &servers.config.keys;
    let mut cursor = "0".to_owned();
    let mut names = Vec::new();
    loop {
        let scan = Call::new("SCAN")
            .arg(&cursor)
            .arg("MATCH")
            .arg(keys.pattern());
        let scan = scan.arg("COUNT").arg("1000");
        let reply = link.send(&[scan]).await?.pop().unwrap_or(Reply::Nil);
        let [next, found]: [Reply; 2] = reply.list()?.try_into().map_err(Trouble::strange)?;
        for key in found.list()? {
            names.extend(keys.name(&key.text()?));
        }
        cursor = next.text()?;
        if cursor == "0" {
            names.sort();
            names.dedup();
            return Ok(names);
        }
    }
}

fn view(name: &Name, answer: Vec<Reply>) -> Result<Option<LineView>, Trouble> {
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
