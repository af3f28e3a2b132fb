//! Texts made from the definition of the command line: completions and the man page.

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::Failure;

/// Prints a shell's completion script.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    show(script)
}

/// Prints the man page: the command, then each of its commands with all options. Columns stay columns.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let top = Man::new(command.clone());
    top.render_title(&mut page)?;
    top.render_name_section(&mut page)?;
    top.render_synopsis_section(&mut page)?;
    top.render_description_section(&mut page)?;
    top.render_options_section(&mut page)?;
    verbatim(&mut page, "LOCKS AND EXAMPLES", &command);
    for part in command.get_subcommands() {
        let title = format!("LEASEHOLD {}", part.get_name().to_uppercase());
        page.extend(format!(".SH {title}\n").bytes());
        let man = Man::new(part.clone());
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        verbatim(&mut page, "NOTES", part);
    }
    show(page)
}

/// Prints the text after a command's options in its help, line by line.
fn verbatim(page: &mut Vec<u8>, title: &str, command: &clap::Command) {
    let Some(text) = command.get_after_help() else {
        return;
    };
    page.extend(format!(".SH {title}\n.nf\n").bytes());
    for line in text.to_string().lines() {
        // A dot or a quote at the beginning would be a request.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        page.extend(format!("\\&{line}\n").bytes());
    }
    page.extend(b".fi\n");
}

fn show(text: Vec<u8>) -> Result<u8, Failure> {
    crate::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
