//! Who asks.

use std::fmt;

/// Who asks for a lock: shown to people by `status`, never used to decide anything.
///
/// ```
/// let me = leasehold::engine::Identity::of_this_process();
/// assert_eq!(me.pid, std::process::id());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Its command line, or whatever the program calls itself.
    pub command: String,
}

/// Longer command lines are cut: they are for people.
const COMMAND_MAX: usize = 256;

impl Identity {
    /// An identity from its parts, as an engine stored it.
    pub fn new(host: impl Into<String>, pid: u32, command: impl Into<String>) -> Self {
        let mut command: String = command.into();
        if let Some((cut, _)) = command.char_indices().nth(COMMAND_MAX) {
            command.truncate(cut);
            command.push('…');
        }
        let host = host.into();
        Self { host, pid, command }
    }

    /// This host, this process, its command line.
    pub fn of_this_process() -> Self {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let command: Vec<_> = std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        Self::new(host, std::process::id(), command.join(" "))
    }

    /// The same process under another description.
    #[must_use]
    pub fn called(self, command: impl Into<String>) -> Self {
        Self::new(self.host, self.pid, command)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.pid)
    }
}
