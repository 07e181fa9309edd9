//! The results file that a stage updates while it runs, so that nothing is lost and a repeated command continues.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::results::{Results, Stage};

/// The results of a stage, and the path of their file.
pub struct Kept<'a> {
    path: Option<&'a Path>,
    results: Option<Results>,
}

impl<'a> Kept<'a> {
    /// Creates a store without results. Without a path, results are kept only as text.
    pub fn new(path: Option<&'a Path>) -> Kept<'a> {
        Kept { path, results: None }
    }

    /// Returns the results of an earlier run in the file; `None` if there is no file or it is empty.
    ///
    /// `take_up` returns `None` for another stage, and `Some(None)` for results with other options. Both are refused
    /// with an error, so that nobody overwrites results by accident. `what` names the results in messages, as in `a
    /// sweep`.
    pub fn earlier<T>(
        &mut self,
        what: &str,
        take_up: impl FnOnce(Stage) -> Option<Option<T>>,
    ) -> Result<Option<T>, Failure> {
        let Some(path) = self.path.filter(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0)) else {
            return Ok(None);
        };
        let results = Results::load(path)?;
        let (host, here) = (&results.host, Results::host());
        if *host != here {
            let path = path.display();
            return Err(Failure::input(format!("{path} was begun on {host}, this is {here}: choose another file")));
        }
        let taken = take_up(results.stage.clone());
        // The start time of the earlier run is kept.
        self.results = Some(results);
        match taken {
            Some(Some(earlier)) => Ok(Some(earlier)),
            Some(None) => Err(Failure::input(format!(
                "{} holds {what} with other options: repeat those, or choose another file",
                path.display()
            ))),
            None => Err(another(path)),
        }
    }

    /// Refuses a file with another stage's results, which may have taken hours. Errors: a message to choose another
    /// file.
    pub fn only(&self, same: impl FnOnce(&Stage) -> bool) -> Result<(), Failure> {
        let Some(path) = self.path else { return Ok(()) };
        match Results::load(path) {
            Ok(results) if !same(&results.stage) => Err(another(path)),
            _ => Ok(()),
        }
    }

    pub fn save(&mut self, stage: Stage) -> Result<(), Failure> {
        let results = match self.results.take() {
            Some(results) => Results { stage, ..results },
            None => Results::new(stage),
        };
        let saved = self.path.map_or(Ok(()), |path| results.save(path));
        self.results = Some(results);
        saved
    }

    pub fn text(&self) -> Result<String, Failure> {
        self.results.as_ref().map_or_else(|| Err(Failure::defect("nothing was kept")), Results::text)
    }
}

fn another(path: &Path) -> Failure {
    Failure::input(format!("{} holds another stage's results: choose another file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;

    #[test]
    fn only_the_same_stage_with_the_same_options_is_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let mut kept = Kept::new(Some(&path));
        let probe = |stage: Stage| if let Stage::Probe(probe) = stage { Some(Some(probe)) } else { None };
        assert!(kept.earlier("a probe", probe).unwrap().is_none());
        fs::write(&path, "").unwrap();
        assert!(kept.earlier("a probe", probe).unwrap().is_none(), "an empty file holds nothing");
        let found = Probe { left: vec!["memory".into()], ..Probe::default() };
        Kept::new(Some(&path)).save(Stage::Probe(found)).unwrap();
        assert_eq!(kept.earlier("a probe", probe).unwrap().unwrap().left, ["memory"]);
        let said = kept.earlier("a probe", |_| Some(None::<()>)).unwrap_err().message;
        assert!(said.ends_with("holds a probe with other options: repeat those, or choose another file"), "{said}");
        assert!(kept.only(|stage| matches!(stage, Stage::Probe(_))).is_ok());
        assert!(kept.only(|stage| matches!(stage, Stage::Plan(_))).unwrap_err().message.contains("another stage's"));
        let theirs = fs::read_to_string(&path).unwrap().replace("\"host\": \"", "\"host\": \"not-");
        fs::write(&path, theirs).unwrap();
        let said = kept.earlier("a probe", probe).unwrap_err().message;
        assert!(said.contains("was begun on not-"), "{said}");
        Kept::new(Some(&path)).save(Stage::Probe(Probe::default())).unwrap();
        let said = kept.earlier("a sweep", |_| None::<Option<()>>).unwrap_err().message;
        assert!(said.ends_with("holds another stage's results: choose another file"), "{said}");
    }
}
