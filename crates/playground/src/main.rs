//! Puts the folder of the playground together: `millpond-site WASM REPOSITORY FOLDER`.
//!
//! The folder opens from the disk, without a server: what a page cannot fetch from there is in scripts, the WebAssembly
//! in base 64 among it. The examples are the programs of `litmus/` and those that the documentation shows.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use millpond_litmus::Program;
use serde::Serialize;

/// The pages of the documentation that show programs.
const PAGES: [&str; 2] = ["docs/litmus.md", "docs/check.md"];

const FILES: [(&str, &str); 3] = [
    ("index.html", include_str!("../page/index.html")),
    ("playground.css", include_str!("../page/playground.css")),
    ("playground.js", include_str!("../page/playground.js")),
];

/// A program to begin with.
#[derive(Serialize)]
struct Example {
    /// Where it is from; also the page's address behind `#`.
    name: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [wasm, repository, folder] = args.as_slice() else {
        return Err("usage: millpond-site WASM REPOSITORY FOLDER".into());
    };
    fs::create_dir_all(folder)?;
    for (name, text) in FILES {
        fs::write(folder.join(name), text)?;
    }
    let wasm = BASE64_STANDARD.encode(fs::read(wasm).map_err(|error| format!("{}: {error}", wasm.display()))?);
    fs::write(folder.join("wasm.js"), format!("\"use strict\";\nconst WASM = \"{wasm}\";\n"))?;
    let mut examples = documented(repository)?;
    let documented = examples.len();
    examples.extend(corpus(&repository.join("litmus"))?);
    let json = serde_json::to_string(&examples)?;
    fs::write(folder.join("examples.js"), format!("\"use strict\";\nconst EXAMPLES = {json};\n"))?;
    println!("{}: {} examples, {documented} of them of the documentation", folder.display(), examples.len());
    Ok(())
}

/// The programs in the documentation: what stands between fences and is a program.
fn documented(repository: &Path) -> Result<Vec<Example>, Box<dyn Error>> {
    let mut examples = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(repository.join(page)).map_err(|error| format!("{page}: {error}"))?;
        let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        let programs =
            blocks.map(|(_, text)| text).filter(|text| Program::parse(text).is_ok_and(|it| !it.ops().is_empty()));
        for (number, text) in (1..).zip(programs) {
            examples.push(Example { name: format!("{page}/{number}"), text: text.to_owned() });
        }
    }
    Ok(examples)
}

/// The programs of the corpus, by folder and name.
fn corpus(folder: &Path) -> Result<Vec<Example>, Box<dyn Error>> {
    let mut examples = Vec::new();
    for group in fs::read_dir(folder)?.flatten().filter(|entry| entry.path().is_dir()) {
        for file in
            fs::read_dir(group.path())?.flatten().filter(|it| it.path().extension().is_some_and(|it| it == "litmus"))
        {
            let stem = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{}/{stem}", group.file_name().to_string_lossy());
            examples.push(Example { name, text: fs::read_to_string(file.path())? });
        }
    }
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(examples)
}
