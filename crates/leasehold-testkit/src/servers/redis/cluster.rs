//! Several servers that share the slots.

use super::Redis;
use crate::poll::until;

/// Three masters that share the slots, and perhaps a replica of each.
#[derive(Debug)]
pub struct Cluster {
    /// The members.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts three masters and waits until each of them has its slots.
    pub fn start() -> Self {
        Self::of(3, "0")
    }

    /// Starts three masters, a replica of each, and waits until they have found each other.
    pub fn with_replicas() -> Self {
        let cluster = Self::of(6, "1");
        until("the replicas have caught up", || {
            let seen: Vec<_> = cluster.nodes.iter().map(|node| node.cli("ROLE")).collect();
            let count = |what| seen.iter().filter(|role| role.contains(what)).count();
            let all = (count("master\n"), count("connected"));
            (all == (3, 3)).then_some(()).ok_or_else(|| seen.join("\n"))
        });
        cluster
    }

    fn of(members: usize, replicas: &str) -> Self {
        let settings = "--save  --cluster-enabled yes --cluster-node-timeout 2000 --cluster-require-full-coverage no --cluster-config-file nodes.conf";
        let nodes: Vec<_> = (0..members).map(|_| Redis::with(settings)).collect();
        let all: Vec<_> = nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(all.iter().map(String::as_str));
        create.extend(["--cluster-replicas", replicas, "--cluster-yes"]);
        let said = nodes[0].cli_args(&create);
        until("the cluster is whole", || {
            let seen: Vec<_> = nodes.iter().map(|node| node.cli("CLUSTER INFO")).collect();
            let whole = |text: &String| {
                let known = format!("cluster_known_nodes:{members}");
                text.contains("cluster_state:ok") && text.contains(&known)
            };
            seen.iter()
                .all(whole)
                .then_some(())
                .ok_or_else(|| format!("{said}\n{}", seen.join("\n")))
        });
        Self { nodes }
    }

    /// Its URL, with every member.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Whether the member at this place is a master by now.
    pub fn is_master(&self, at: usize) -> bool {
        self.nodes[at].cli("ROLE").starts_with("master")
    }

    fn masters(&self) -> impl Iterator<Item = &Redis> {
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.cli("ROLE").starts_with("master"))
    }

    /// Waits until each replica has heard of all that its master has done until now.
    ///
    /// # Panics
    /// If a master does not say how much that is.
    pub fn replicas_have_all(&self) {
        for node in self.masters() {
            let done = offset(&node.cli("INFO replication"), "master_repl_offset:");
            let done = done.expect("an offset");
            until("the replica has heard of all", || {
                let said = node.cli("INFO replication");
                match offset(&said, ",offset=") {
                    Some(heard) if heard >= done => Ok(()),
                    _ => Err(format!("of {done}: {said}")),
                }
            });
        }
    }

    /// Moves every slot of the first member to the second, with what is in them.
    pub fn rebalance(&self) -> String {
        let [from, to] =
            [0, 1].map(|at: usize| self.nodes[at].cli("CLUSTER MYID").trim().to_owned());
        let member = format!("127.0.0.1:{}", self.nodes[0].port);
        let args = [
            "--cluster",
            "reshard",
            &member,
            "--cluster-from",
            &from,
            "--cluster-to",
            &to,
        ];
        let rest = ["--cluster-slots", "16384", "--cluster-yes"];
        self.nodes[0].cli_args(&[&args[..], &rest[..]].concat())
    }
}

/// The number after these words.
fn offset(said: &str, words: &str) -> Option<u64> {
    let number = said.split(words).nth(1)?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}
