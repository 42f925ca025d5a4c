//! Tables: aligned columns without lines around them. Used for what is short; the page of a long
//! scan is a table of its own.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement};

/// Columns that fit their widest cell. Build it row by row, then print it.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
}

impl Table {
    /// A table with these column titles; a title that starts with `>` aligns its column right.
    pub fn new(titles: &[&str]) -> Table {
        let mut table = Table::bare();
        table.table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
        for (index, title) in titles.iter().enumerate() {
            if title.starts_with('>') {
                table.align_right(index);
            }
        }
        table
    }

    /// A table without titles.
    pub fn bare() -> Table {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Table { table }
    }

    /// Adds a row.
    pub fn row<Cell: Into<comfy_table::Cell>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.table.add_row(cells.into_iter());
    }

    fn align_right(&mut self, index: usize) {
        if let Some(column) = self.table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in self.table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", ">rows"]);
        table.row(["ab", "7"]);
        table.row(["abcdef", "1,234"]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        assert!(lines[1].ends_with(" 7"), "{text}");
    }
}
