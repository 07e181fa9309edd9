//! Skipping tests that the running kernel is too old for.

/// Returns whether the kernel is Linux `since` or newer, as `what` requires. If not, prints that the test is skipped.
pub fn kernel_has(since: (u32, u32), what: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let has = version(&release) >= since;
    if !has {
        eprintln!("skipped: {what} needs Linux {}.{}, but this is {release}", since.0, since.1);
    }
    has
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-', '+']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("6.12.1-amd64") > version("6.9"));
        assert_eq!((version("5.14.0-503.el9"), version("6.18+"), version("x")), ((5, 14), (6, 18), (0, 0)));
        assert!(kernel_has((3, 0), "this test") && !kernel_has((1000, 0), "no test"));
    }
}
