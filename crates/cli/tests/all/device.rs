//! The emulated devices on the command line: listed, shown, probed.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

/// A device that takes a moment to probe: the flat model.
const QUICK: &str = "name = 'quick'\ntitle = 'a flat one'\nbase = 'wophi'\n";

#[test]
fn devices_are_listed_and_shown() {
    // Fails if a built-in device were missing from the list, or a number shown without its source.
    let place = Place::new();
    let list = place.json(&["device", "list"]);
    let names: Vec<_> = list.as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert!(names.len() >= 15 && names.contains(&&"walsh".into()), "{names:?}");
    let text = String::from_utf8(place.ok(&["device", "list"])).unwrap();
    assert_eq!(text.lines().count(), names.len());
    for (line, row) in text.lines().zip(list.as_array().unwrap()) {
        let (name, title) = line.split_once(' ').unwrap();
        assert_eq!((&row["name"], &row["title"]), (&name.into(), &title.trim().into()), "{line}");
    }
    let shown = place.json(&["device", "show", "tiered"]);
    let numbers = shown["numbers"].as_array().unwrap();
    assert!(numbers.iter().all(|number| !number["source"].as_str().unwrap().is_empty()));
    let text = String::from_utf8(place.ok(&["device", "show", "tiered"])).unwrap();
    assert!(text.contains("page_write_us") && text.contains("800"), "{text}");
    let page = numbers.iter().find(|number| number["key"] == "page_bytes").unwrap();
    assert_eq!((&page["value"], &page["unit"]), (&"4096".into(), &"B".into()), "{page}");
    // Both show the same numbers.
    for number in numbers {
        let cells = ["key", "value", "unit", "source"].map(|name| number[name].as_str().unwrap());
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let is_shown = text.lines().any(|line| words(line) == words(&cells.join(" ")));
        assert!(is_shown, "{number} is not in {text}");
    }
}

#[test]
fn a_device_of_ones_own_is_probed_from_its_file() {
    // Fails if a report were incomplete, or a good device ended with another status than 0.
    let place = Place::new();
    place.write("quick.toml", QUICK);
    let text = String::from_utf8(place.ok(&["device", "probe", "quick.toml"])).unwrap();
    assert!(text.lines().last().unwrap().ends_with("values are within their tolerance"), "{text}");
    let json = place.json(&["device", "probe", "quick.toml", "--out", "report"]);
    assert_eq!(json["holds"], true);
    let page = String::from_utf8(place.read("report/quick.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("All 5 values"), "{page}");
    assert!(!place.read("report/quick-flat.svg").is_empty());
    assert!(!place.read("report/quick.json").is_empty());
}

#[test]
fn a_device_that_does_not_show_its_numbers_ends_with_status_one() {
    // Fails if a value outside its tolerance went unnoticed: where caches are durable a flush is
    // nothing, so the stated cost of a flush is never seen.
    let place = Place::new();
    let line = "survives = { value = 'eadr', source = 'test' }\n";
    place.write("odd.toml", format!("{QUICK}{line}"));
    let run = place.run(&["device", "probe", "odd.toml"]);
    assert_eq!((run.status, run.stderr.as_str()), (1, ""));
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.contains("FAIL a flush at 600 ns"), "{text}");
    let failed = text.lines().filter(|line| line.contains("FAIL ")).count();
    assert_eq!(place.run(&["device", "probe", "odd.toml", "--json"]).status, 1);
    assert!(text.ends_with(&format!("\n{} of 5 values are within their tolerance\n", 5 - failed)));
}

#[test]
fn a_wrong_device_gets_one_line_that_says_what_to_do() {
    // Fails if a mistake in a description ended in a panic, or without the key's name.
    let place = Place::new();
    place.run(&["device", "show", "nothing"]).fails(3, &["nothing", "optane-100"]);
    place.write("bad.toml", "name = 'x'\ntitle = 'x'\nbase = 'walsh'\ndims = 4\n");
    place.run(&["device", "probe", "bad.toml"]).fails(3, &["bad.toml", "dims"]);
    place.write("good.toml", QUICK);
    place.write("file", "");
    let run = place.run(&["device", "probe", "good.toml", "--out", "file"]);
    run.fails(4, &["file", "cannot be written"]);
}
