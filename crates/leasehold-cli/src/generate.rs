//! What is made from the definition of the command line: completions and the man page.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Failure;

/// Prints a shell's completion script.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    show(script)
}

/// Prints the man page: the command, then each of its commands with all options.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let top = clap_mangen::Man::new(command.clone());
    top.render(&mut page)?;
    for part in command
        .get_subcommands()
        .filter(|part| part.get_name() != "help")
    {
        let title = format!("LEASEHOLD {}", part.get_name().to_uppercase());
        page.extend(format!(".SH {title}\n").bytes());
        let part = clap_mangen::Man::new(part.clone());
        part.render_synopsis_section(&mut page)?;
        part.render_description_section(&mut page)?;
        part.render_options_section(&mut page)?;
        part.render_extra_section(&mut page)?;
    }
    show(page)
}

fn show(text: Vec<u8>) -> Result<u8, Failure> {
    crate::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
