//! The picture: what was sold and how fast, side by side.

use std::fmt::Write;

use super::rows::Row;

/// Colours.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// In the name of the file.
    pub name: &'static str,
    ground: &'static str,
    edge: &'static str,
    text: &'static str,
    faint: &'static str,
    right: &'static str,
    wrong: &'static str,
    speed: &'static str,
    idle: &'static str,
}

/// For a light page and for a dark one.
pub const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        ground: "#ffffff",
        edge: "#d0d7de",
        text: "#1f2328",
        faint: "#59636e",
        right: "#1a7f37",
        wrong: "#cf222e",
        speed: "#0969da",
        idle: "#afb8c1",
    },
    Theme {
        name: "dark",
        ground: "#0d1117",
        edge: "#3d444d",
        text: "#f0f6fc",
        faint: "#9198a1",
        right: "#2ea043",
        wrong: "#ff7b72",
        speed: "#1f6feb",
        idle: "#656c76",
    },
];

const WIDTH: f64 = 680.0;
const NAMES: f64 = 20.0;
const SOLD: f64 = 300.0;
const SPEED: f64 = 500.0;
/// The longest bar of each column.
const LONGEST: f64 = 120.0;
const ROW: f64 = 26.0;
const TOP: f64 = 58.0;

/// The picture of some rows.
pub fn picture(rows: &[&Row], theme: &Theme) -> String {
    let height = TOP + ROW * rows.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"t d\" font-family=\"-apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\" \
         font-size=\"14\">\n<title id=\"t\">The shop: what each way sold, and how fast</title>\n<desc id=\"d\">{}</desc>\n",
        told(rows)
    );
    let _ = writeln!(
        svg,
        "<rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"{}\" stroke=\"{}\"/>",
        WIDTH - 1.0,
        height - 1.0,
        theme.ground,
        theme.edge
    );
    for (at, title) in [
        (NAMES, "way to sell"),
        (SOLD, "sold"),
        (SPEED, "sold per second"),
    ] {
        let _ = writeln!(
            svg,
            "<text x=\"{at}\" y=\"30\" fill=\"{}\" font-weight=\"600\">{title}</text>",
            theme.text
        );
    }
    legend(&mut svg, theme);
    let most = |of: fn(&Row) -> f64| rows.iter().map(|row| of(row)).fold(1.0, f64::max);
    let (sold, speed) = (most(|row| row.sold as f64), most(|row| row.per_second));
    for (at, row) in rows.iter().enumerate() {
        let top = TOP + ROW * at as f64;
        bars(&mut svg, row, top, (LONGEST / sold, LONGEST / speed), theme);
    }
    svg + "</svg>\n"
}

fn legend(svg: &mut String, theme: &Theme) {
    for (at, fill, what) in [
        (SOLD + 46.0, theme.right, "was there"),
        (SOLD + 118.0, theme.wrong, "was not"),
    ] {
        let _ = writeln!(
            svg,
            "<text x=\"{at}\" y=\"30\" fill=\"{fill}\" font-size=\"12.5\">{what}</text>"
        );
    }
}

/// The two bars of a row, whose top is there, and their figures.
fn bars(svg: &mut String, row: &Row, top: f64, scale: (f64, f64), theme: &Theme) {
    text(svg, NAMES, top, theme.text, &plain(&row.way));
    let right = (row.sold - row.oversold) as f64 * scale.0;
    let wrong = row.oversold as f64 * scale.0;
    bar(svg, SOLD, top, right, theme.right);
    bar(svg, SOLD + right, top, wrong, theme.wrong);
    let beside = SOLD + right + wrong + 6.0;
    let fill = match row.oversold {
        0 => {
            text(svg, beside, top, theme.faint, &row.sold.to_string());
            theme.speed
        }
        oversold => {
            text(svg, beside, top, theme.wrong, &format!("+{oversold}"));
            theme.idle
        }
    };
    let wide = row.per_second * scale.1;
    bar(svg, SPEED, top, wide, fill);
    let speed = format!("{:.0}", row.per_second);
    text(svg, SPEED + wide + 6.0, top, theme.faint, &speed);
}

fn text(svg: &mut String, at: f64, top: f64, fill: &str, text: &str) {
    let y = top + 16.0;
    let _ = writeln!(
        svg,
        "<text x=\"{at:.1}\" y=\"{y}\" fill=\"{fill}\">{text}</text>"
    );
}

fn bar(svg: &mut String, at: f64, top: f64, wide: f64, fill: &str) {
    let y = top + 4.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{at:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"16\" fill=\"{fill}\"/>"
    );
}

/// A name without the marks of Markdown.
fn plain(name: &str) -> String {
    name.replace('`', "")
        .replace(", work longer than its expiry", ", overrun")
}

fn told(rows: &[&Row]) -> String {
    let told = rows.iter().map(|row| {
        format!(
            "{}: {} sold, {} of them oversold, {:.0} per second.",
            plain(&row.way),
            row.sold,
            row.oversold,
            row.per_second
        )
    });
    told.collect::<Vec<_>>().join(" ")
}
