//! The table for people.

use super::view::View;

/// Columns between the borders.
const WIDTH: usize = 77;

fn line(text: &str) -> String {
    format!("| {text:<inner$.inner$} |\n", inner = WIDTH - 2)
}

fn rule() -> String {
    format!("+{}+\n", "-".repeat(WIDTH))
}

/// What the sessions have of each device, and their processes. What reads N/A belongs to the whole card.
pub(super) fn of(view: &View) -> String {
    let mut out = rule();
    // As scripts look for it.
    out += &line(&format!(
        "Bulkhead-SMI {}   Driver Version: {}   CUDA Version: {}",
        env!("CARGO_PKG_VERSION"),
        view.driver_version,
        view.cuda_version
    ));
    out += &rule();
    out += &line(&format!("{:<40} {:<17} {:>16}", "GPU  Name", "Bus-Id", "Compute"));
    out += &line(&format!("{:<40} {:<17} {:>16}", "     Memory-Usage", "GPU-Util", "Temp / Power"));
    out += &rule();
    for card in &view.cards {
        let memory = format!("     {}MiB / {}MiB", card.used() >> 20, card.total >> 20);
        out += &line(&format!(
            "{:>3}  {:<35.35} {:<17} {:>16}",
            card.index, card.name, card.bus_id, card.capability
        ));
        out += &line(&format!("{memory:<40} {:<17} {:>16}", "N/A", "N/A / N/A"));
    }
    out += &rule();
    out += &line(&format!(
        "{:<4} {:>10} {:>8}  {:<32} {:>14}",
        "GPU", "PID", "Session", "Process name", "GPU Memory"
    ));
    out += &rule();
    let mut some = false;
    for card in &view.cards {
        for process in &card.processes {
            some = true;
            out += &line(&format!(
                "{:>3}  {:>10} {:>8}  {:<32.32} {:>14}",
                card.index,
                process.pid,
                process.session,
                process.name,
                format!("{}MiB", process.bytes >> 20)
            ));
        }
    }
    if !some {
        out += &line("no processes");
    }
    out + &rule()
}
