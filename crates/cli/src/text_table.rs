//! Tables for terminals, without rules: the first column is aligned to the left, the others to the right.

use comfy_table::{CellAlignment, Table, presets};

/// Creates a table without rules.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Returns the table as text.
pub(crate) fn render(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}
