//! Tables for the terminal: columns as wide as necessary, numbers right-aligned.

#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(heading: impl IntoIterator<Item = S>) -> Table {
        Table { rows: vec![heading.into_iter().map(Into::into).collect()] }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the text: one line per row, and a rule below the heading.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let right: Vec<bool> = (0..columns).map(|column| self.is_numeric(column)).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells = (0..columns).map(|column| {
                let cell = row.get(column).map_or("", String::as_str);
                let fill = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                if right[column] { format!("{fill}{cell}") } else { format!("{cell}{fill}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                text.push_str(rule.join("  ").trim_end());
                text.push('\n');
            }
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        self.rows
            .iter()
            .skip(1)
            .filter_map(|row| row.get(column))
            .all(|cell| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let mut table = Table::new(["what", "rate"]);
        table.row(["a", "1.0"]);
        table.row(["bcd", "100.0"]);
        assert_eq!(table.render(), "what   rate\n----  -----\na       1.0\nbcd   100.0\n");
    }
}
