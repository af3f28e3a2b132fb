//! The locks that ancestors of this process hold, as the environment tells.
//!
//! A nested `run` of a name an ancestor holds would wait for itself for ever. `LEASEHOLD_HELD` has a line per lock:
//! fence, name, location, with tabs between. Names have no control characters; a location is escaped.

use leasehold::Fence;

/// The variable.
pub(crate) const HELD: &str = "LEASEHOLD_HELD";

/// The grants of ancestors, the outermost first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(Vec<Record>);

#[derive(Debug, PartialEq, Eq)]
struct Record {
    fence: Fence,
    name: String,
    location: String,
}

impl Held {
    /// As this process was told.
    pub(crate) fn from_env() -> Self {
        std::env::var(HELD).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Lines that are not ours are left out: at worst a nested run waits instead of being refused.
    fn parse(text: &str) -> Self {
        let records = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, '\t');
            Some(Record {
                fence: Fence::new(parts.next()?.parse().ok()?),
                name: parts.next()?.to_owned(),
                location: parts.next()?.to_owned(),
            })
        });
        Self(records.collect())
    }

    /// The fence under which an ancestor holds this name there, the innermost if there are several.
    pub(crate) fn fence(&self, location: &str, name: &str) -> Option<Fence> {
        let location = escaped(location);
        let same = |record: &&Record| record.location == location && record.name == name;
        self.0.iter().rev().find(same).map(|record| record.fence)
    }

    /// With one more.
    pub(crate) fn and(mut self, location: &str, name: &str, fence: Fence) -> Self {
        self.0.push(Record {
            fence,
            name: name.to_owned(),
            location: escaped(location),
        });
        self
    }

    /// As the child is told.
    pub(crate) fn to_env(&self) -> String {
        let line = |r: &Record| format!("{}\t{}\t{}", r.fence, r.name, r.location);
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn escaped(location: &str) -> String {
    location.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_environment() {
        let held = Held::default()
            .and("file:/a", "x y", Fence::new(1))
            .and("file:/odd\n\tplace", "x", Fence::new(2))
            .and("file:/a", "x y", Fence::new(3));
        let told = Held::parse(&held.to_env());
        assert_eq!(told, held);
        assert_eq!(told.fence("file:/a", "x y"), Some(Fence::new(3)));
        assert_eq!(told.fence("file:/odd\n\tplace", "x"), Some(Fence::new(2)));
        assert_eq!(told.fence("file:/b", "x y"), None);
        assert_eq!(told.fence("file:/a", "x"), None);
    }

    #[test]
    fn ignores_what_it_does_not_understand() {
        assert_eq!(Held::parse("\nrubbish\nx\ty\tz\n1\tonly"), Held::default());
    }
}
