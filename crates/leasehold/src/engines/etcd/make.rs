//! Making the node of a claim, once, whatever becomes of the answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::proto::TxnResponse;
use super::client::{Answer, Trouble};
use super::names::{self, node_name};
use super::session::{EtcdServer, revision};
use super::txn::{Txn, range, ranges, whole};
use crate::claim::ClaimId;
use crate::engines::ordered::{Fail, Kind, Listed, Made, New};

/// A node to be.
struct Wanted<'a> {
    room: &'a str,
    /// Its key, in full.
    key: String,
    value: Vec<u8>,
    /// Only if there is no other in the room.
    alone: bool,
}

/// What became of a request.
enum Outcome {
    /// The revision that made the node, and its room.
    Made(i64, Listed),
    /// Others are in the room.
    Others(Listed),
    /// Nothing was done: it may be asked again.
    Nothing,
}

impl EtcdServer {
    /// Makes the node of a claim, or none for one that does not wait where others are.
    pub(super) async fn make_node(
        &self,
        room: &str,
        new: &New<'_>,
        count: u32,
    ) -> Result<Made, Fail> {
        let name = names::key(self.lease, new, count);
        let mut wanted = Wanted {
            room,
            key: format!("{room}{name}"),
            value: self.pack(new.data),
            alone: !new.waits && matches!(new.kind, Kind::Mutex | Kind::Write),
        };
        let (created, listed) = loop {
            self.fresh().await?;
            let generation = self.generation.load(Ordering::Acquire);
            let asked = self.attempt(new.claim, &wanted, generation);
            match asked.await {
                Ok(answer) => match self.outcome(&wanted, generation, &answer)? {
                    Outcome::Made(created, listed) => break (Some(created), listed),
                    // Keys that are no claims, of neighbours below the name.
                    Outcome::Others(listed) if listed.nodes.is_empty() => wanted.alone = false,
                    Outcome::Others(listed) => break (None, listed),
                    Outcome::Nothing => {}
                },
                // It may still be done: not after this.
                Err(Trouble::Unknown(_)) => self.move_on(generation).await?,
                Err(Trouble::Busy(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(trouble) => return Err(trouble.into()),
            }
        };
        drop(self.flights.lock().remove(&new.claim));
        let names = created.map(|created| node_name(&name, created));
        Ok(Made {
            names: names.into_iter().collect(),
            number: created.unwrap_or(0),
            listed,
        })
    }

    fn creation(&self, wanted: &Wanted<'_>, generation: i64) -> Txn {
        let (own, session) = (&wanted.key, self.session_key());
        let txn = Txn::new()
            .if_new(own)
            .if_changed_at(&session, generation)
            .put(own, &wanted.value, self.lease)
            .then(whole(wanted.room, true))
            .otherwise(range(own))
            .otherwise(range(&session))
            .otherwise(whole(wanted.room, true));
        match wanted.alone {
            true => txn.if_none(wanted.room),
            false => txn,
        }
    }

    fn outcome(
        &self,
        wanted: &Wanted<'_>,
        generation: i64,
        answer: &TxnResponse,
    ) -> Result<Outcome, Fail> {
        let (number, mut found) = (revision(answer), ranges(answer).into_iter());
        if answer.succeeded {
            let listed = self.listed(wanted.room, found.next().unwrap_or(&[]), number);
            return Ok(Outcome::Made(number, listed));
        }
        let [own, session, others] = [(); 3].map(|()| found.next().unwrap_or(&[]));
        let listed = self.listed(wanted.room, others, number);
        // The request whose answer was lost has made it.
        if let Some(own) = own.first() {
            return Ok(Outcome::Made(own.create_revision, listed));
        }
        let Some(session) = session.first() else {
            self.life.over.cancel();
            return Err(Fail::Over("the session's key was deleted".to_owned()));
        };
        if session.mod_revision != generation {
            let now = session.mod_revision;
            self.generation.store(now, Ordering::Release);
            return Ok(Outcome::Nothing);
        }
        Ok(Outcome::Others(listed))
    }

    /// Asks once to make a node. The request is not given up with the caller: `clear` waits for its outcome.
    #[expect(
        clippy::disallowed_methods,
        reason = "an answer that its caller does not wait for any more is needed"
    )]
    async fn attempt(
        &self,
        claim: ClaimId,
        wanted: &Wanted<'_>,
        generation: i64,
    ) -> Answer<TxnResponse> {
        let connection = self.judged(self.client.up().await)?;
        let request = self.creation(wanted, generation).request();
        let flight = self.flights.lock().entry(claim).or_default().clone();
        let mut doubt = flight.lock_owned().await;
        let asked = tokio::spawn(async move {
            *doubt = Some(generation);
            let answer = connection.txn(request).await;
            let lost = matches!(answer, Err(Trouble::Unknown(_)));
            *doubt = lost.then_some(generation);
            answer
        });
        let ended = |_| Trouble::Dead("the runtime has ended".to_owned());
        self.judged(asked.await.map_err(ended).flatten())
    }
}
