//! Plants every bug in a copy of the source, each behind a switch: one build has them all, and the environment of a process
//! says which is on.

use std::path::Path;

use super::{Mutant, list};
use crate::Outcome;

/// The variable that names the bug that is on.
pub(super) const SWITCH: &str = "PLANTED";

/// Stands for the switch in a switched text.
const MARK: &str = "PLANTED";

/// Where the script of the Redis engine is loaded.
const SCRIPT: (&str, &str, &str) = (
    "engines/redis/client/connection.rs",
    ".arg(script)",
    ".arg(crate::planted::script(script))",
);

/// Plants all bugs in the copy of `crates/leasehold/src`.
pub(super) fn all(source: &Path) -> Outcome<()> {
    let in_rust = |mutant: &&Mutant| mutant.file.ends_with(".rs");
    for mutant in list::all().filter(in_rust) {
        change(source, mutant.file, mutant.before, &switched(mutant))?;
    }
    let (file, before, after) = SCRIPT;
    change(source, file, before, after)?;
    change(
        source,
        "lib.rs",
        "\nmod claim;\n",
        "\nmod claim;\nmod planted;\n",
    )?;
    std::fs::write(source.join("planted.rs"), module())?;
    Ok(())
}

fn switched(mutant: &Mutant) -> String {
    let on = format!("crate::planted::is({:?})", mutant.name);
    mutant.after.replace(MARK, &on)
}

fn change(source: &Path, file: &str, before: &str, after: &str) -> Outcome<()> {
    let path = source.join(file);
    let text = std::fs::read_to_string(&path)?;
    match text.matches(before).count() {
        1 => Ok(std::fs::write(&path, text.replace(before, after))?),
        count => Err(format!("{file} has {count} places like this: {before}").into()),
    }
}

/// The switch, in Rust.
fn module() -> String {
    let in_script = list::all().filter(|mutant| mutant.file.ends_with(".lua"));
    let arms: String = in_script
        .map(|mutant| {
            let Mutant {
                name,
                before,
                after,
                ..
            } = mutant;
            format!("        {name:?} => text.replace({before:?}, {after:?}),\n")
        })
        .collect();
    format!(
        r#"//! Which planted bug is on.

use std::sync::OnceLock;

fn which() -> &'static str {{
    static WHICH: OnceLock<String> = OnceLock::new();
    WHICH.get_or_init(|| std::env::var("{SWITCH}").unwrap_or_default())
}}

#[inline]
pub(crate) fn is(name: &str) -> bool {{
    which() == name
}}

#[cfg(feature = "redis")]
pub(crate) fn script(text: &str) -> String {{
    match which() {{
{arms}        _ => text.to_owned(),
    }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_has_its_place() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leasehold/src");
        let copy = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp")
            .args(["-r", "-T"])
            .args([&own, copy.path()])
            .status();
        assert!(copied.unwrap().success());
        all(copy.path()).unwrap();
        for mutant in list::all().filter(|mutant| mutant.file.ends_with(".lua")) {
            let text = std::fs::read_to_string(own.join(mutant.file)).unwrap();
            assert_eq!(text.matches(mutant.before).count(), 1, "{}", mutant.name);
        }
    }

    #[test]
    fn every_bug_in_rust_has_its_switch() {
        for mutant in list::all() {
            let switched = mutant.after.contains(MARK);
            assert_eq!(switched, mutant.file.ends_with(".rs"), "{}", mutant.name);
        }
    }
}
