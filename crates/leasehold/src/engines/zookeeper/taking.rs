//! Making a claim's node, once, whatever becomes of the answer.

use super::link::Link;
use super::note::Note;
use super::seat::Fail;
use super::wire::{Answer, Facts, Joined, Trouble, Watch, With};

/// A place in a line.
pub(super) struct Taken {
    pub(super) own: (String, Facts),
    /// A watch on the parent, where it was asked for and `own` was there when it was set.
    pub(super) parent: Option<Watch>,
    /// Its siblings and, perhaps, a watch for the next change among them; none only where they were not asked for.
    pub(super) listed: Option<(Vec<String>, Option<Watch>)>,
}

/// Makes a claim's node below `parent`, once.
pub(super) async fn take_place(
    link: &Link,
    parent: &str,
    prefix: &str,
    note: &Note,
    with: With,
) -> Result<Taken, Fail> {
    let data = link.written.of(note);
    let joined = link.wire.join(parent, prefix, &data, with).await;
    match joined.taken(with) {
        Ok(taken) => Ok(taken),
        // In a box: what seldom happens should not make every claim's future large.
        Err(made) => Box::pin(take_place_at_last(link, parent, prefix, &data, made)).await,
    }
}

impl Joined {
    /// The place, if all that was asked for came; else what is known of the node.
    fn taken(self, with: With) -> Result<Taken, Answer<(String, Facts)>> {
        match (self.made, self.listed) {
            (Ok(own), None) if with != With::Nothing => Err(Ok(own)),
            (Ok(own), listed) => Ok(Taken {
                own,
                parent: self.parent,
                listed: listed.map(|(children, behind)| (children, Some(behind))),
            }),
            (made, _) => Err(made),
        }
    }
}

/// Finds out what became of a node, makes it again if it was not made, and lists its siblings.
async fn take_place_at_last(
    link: &Link,
    parent: &str,
    prefix: &str,
    data: &[u8],
    mut made: Answer<(String, Facts)>,
) -> Result<Taken, Fail> {
    loop {
        let own = match made {
            Ok(own) => Some(own),
            // Never used, or cleared away when it was empty.
            Err(Trouble::NoNode) => link.mkdir(parent).await.map(|()| None)?,
            Err(Trouble::Unknown(why)) => {
                tracing::debug!(why, "whether the node was made is not known");
                settle(link, parent, prefix).await?
            }
            Err(trouble) => return Err(trouble.into()),
        };
        if let Some(own) = own {
            let children = link.again(|| link.wire.list(parent)).await?;
            return Ok(Taken {
                own,
                parent: None,
                listed: Some((children, None)),
            });
        }
        let joined = link.wire.join(parent, prefix, data, With::List).await;
        made = match joined.taken(With::List) {
            Ok(taken) => return Ok(taken),
            Err(made) => made,
        };
    }
}

/// Whether a node whose creation got no answer is there. After a `sync` the answer is final: a request left behind
/// at another server is refused there.
async fn settle(link: &Link, parent: &str, prefix: &str) -> Result<Option<(String, Facts)>, Fail> {
    link.again(|| link.wire.sync(parent)).await?;
    let children = match link.again(|| link.wire.list(parent)).await {
        Err(Trouble::NoNode) => return Ok(None),
        listed => listed?,
    };
    let Some(name) = children.into_iter().find(|name| name.starts_with(prefix)) else {
        return Ok(None);
    };
    let path = format!("{parent}/{name}");
    match link.again(|| link.wire.read(&path)).await {
        // A node of another session is about to be deleted, whatever its name.
        Ok((_, facts)) if facts.owner == link.wire.session() => Ok(Some((name, facts))),
        Ok(_) | Err(Trouble::NoNode) => Ok(None),
        Err(trouble) => Err(trouble.into()),
    }
}
