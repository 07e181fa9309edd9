//! Result of one check: its errors and warnings.

use std::fmt;

/// Errors fail the check, warnings only show.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    pub fn error(&mut self, message: impl Into<String>) {
        self.errors.push(message.into());
    }

    pub fn warning(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    #[cfg(test)]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    #[cfg(test)]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(formatter, "warning: {warning}")?;
        }
        for error in &self.errors {
            writeln!(formatter, "error: {error}")?;
        }
        Ok(())
    }
}
