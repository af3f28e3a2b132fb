//! Three servers that are one.

use std::fmt::Write as _;
use std::net::TcpStream;

use super::ZooKeeper;
use crate::poll::until;
use crate::proxy::{Fate, Proxy};
use crate::servers::{directory, free_port};

/// Three servers that are one.
#[derive(Debug)]
pub struct Ensemble {
    /// The members.
    pub members: Vec<ZooKeeper>,
    /// Before each member, for clients; none if they connect directly.
    pub doors: Vec<Proxy>,
    links: Vec<Link>,
}

/// How one member reaches another.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    quorum: Proxy,
    election: Proxy,
}

/// Where a member listens to the others: for what is decided, and for elections.
type Ports = [u16; 2];

impl Ensemble {
    /// Three members on this machine, with a leader.
    pub fn start() -> Self {
        Self::linked(Vec::new(), free_ports())
    }

    /// Three members that hear each other, and are heard by clients, through proxies alone.
    pub fn behind_proxies() -> Self {
        let ports = free_ports();
        let links = pairs().map(|(from, to)| Link::between(from, to, ports[to]));
        let mut ensemble = Self::linked(links.collect(), ports);
        let members = ensemble.members.iter();
        ensemble.doors = members.map(|member| Proxy::before(member.port())).collect();
        ensemble
    }

    fn linked(links: Vec<Link>, ports: [Ports; 3]) -> Self {
        let member = |me: usize| {
            let mut config = "initLimit=20\nsyncLimit=10\nstandaloneEnabled=false\n".to_owned();
            for (to, direct) in ports.iter().enumerate() {
                let link = links.iter().find(|link| (link.from, link.to) == (me, to));
                let [quorum, election] = link.map_or(*direct, Link::ports);
                let id = to + 1;
                let _ = writeln!(config, "server.{id}=127.0.0.1:{quorum}:{election}");
            }
            let member = ZooKeeper::configured(directory(), free_port(), &config);
            let myid = member.dir.path().join("data/myid");
            std::fs::write(myid, (me + 1).to_string()).expect("a file");
            member.restart();
            // Those with larger numbers call those with smaller ones, and need not call again.
            let _ = until("it listens to elections", || {
                TcpStream::connect(("127.0.0.1", ports[me][1])).map_err(|error| error.to_string())
            });
            member
        };
        let members: Vec<_> = (0..3).map(member).collect();
        members.iter().for_each(ZooKeeper::ready);
        Self {
            members,
            doors: Vec::new(),
            links,
        }
    }

    /// The URL of all members, through their doors if they have some, without a path.
    pub fn url(&self) -> String {
        self.url_of(&[0, 1, 2])
    }

    /// The URL of these members.
    pub fn url_of(&self, members: &[usize]) -> String {
        let port = |member: &usize| match self.doors.get(*member) {
            Some(door) => door.port,
            None => self.members[*member].port(),
        };
        let hosts = members
            .iter()
            .map(|member| format!("127.0.0.1:{}", port(member)));
        format!("zookeeper://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Nothing passes any more between a member and the others. Its clients still reach it.
    pub fn isolate(&self, member: usize) {
        self.links_of(member, Fate::Hold);
    }

    /// Messages that were held back arrive, and all later ones.
    pub fn heal(&self, member: usize) {
        self.links_of(member, Fate::Pass);
    }

    fn links_of(&self, member: usize, fate: Fate) {
        for link in &self.links {
            if [link.from, link.to].contains(&member) {
                link.set(fate);
            }
        }
    }

    /// The member that leads now.
    pub fn leader(&self) -> &ZooKeeper {
        &self.members[self.leads()]
    }

    /// Which member leads now.
    pub fn leads(&self) -> usize {
        until("there is a leader", || {
            let leads = self.members.iter().position(ZooKeeper::leads);
            leads.ok_or_else(|| "none".to_owned())
        })
    }
}

impl Link {
    fn between(from: usize, to: usize, [quorum, election]: Ports) -> Self {
        let (quorum, election) = (Proxy::before(quorum), Proxy::before(election));
        let link = Self {
            from,
            to,
            quorum,
            election,
        };
        link.set(Fate::Pass);
        link
    }

    fn ports(&self) -> Ports {
        [self.quorum.port, self.election.port]
    }

    /// For elections a member that is called by one with a smaller number calls back, at the address that it was told
    /// and not through a proxy. So those calls never get through, and the larger number calls by itself.
    fn set(&self, fate: Fate) {
        self.quorum.set_both(fate);
        let calls = self.from > self.to;
        self.election
            .set_both(if calls { fate } else { Fate::Reset });
    }
}

fn free_ports() -> [Ports; 3] {
    std::array::from_fn(|_| [free_port(), free_port()])
}

/// The connections between members.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    let all = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
    all.filter(|(from, to)| from != to)
}
