//! What the rules need of a Markdown text: tables, links, code, headings, each with its line.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// One row of a table: the cells as plain text, and the code spans in each.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Line, counted from 1.
    pub line: usize,
    /// The text of each cell; code spans keep their back quotes.
    pub cells: Vec<String>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The first row.
    pub head: Row,
    /// The other rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Returns the index of the column `title`, in whatever case.
    pub fn column(&self, title: &str) -> Option<usize> {
        self.head.cells.iter().position(|cell| cell.eq_ignore_ascii_case(title))
    }
}

/// A fenced block of code.
#[derive(Clone, Debug)]
pub struct Fence {
    /// Line of its first line, counted from 1.
    pub line: usize,
    /// The language.
    pub language: String,
    /// The text.
    pub text: String,
    /// The heading under which it stands.
    pub under: String,
}

/// A text, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Every table.
    pub tables: Vec<Table>,
    /// Target of every link and picture, with its line.
    pub links: Vec<(usize, String)>,
    /// Every code span, with its line.
    pub code: Vec<(usize, String)>,
    /// Every fenced block.
    pub fences: Vec<Fence>,
    /// Every heading, as the name of its anchor.
    pub anchors: Vec<String>,
    /// Every line of prose, without code.
    pub prose: Vec<(usize, String)>,
}

impl Document {
    /// Takes a text apart.
    pub fn parse(text: &str) -> Document {
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        let mut reader = Reader::default();
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            // A break begins where its line ends, and the text of a fence behind its first line.
            reader.line = text[..range.start].matches('\n').count() + 1;
            reader.take(event);
        }
        reader.document
    }

    /// Returns the tables with a column `title`, in whatever case, and the index of that column.
    pub fn tables_with(&self, title: &str) -> impl Iterator<Item = (&Table, usize)> {
        self.tables.iter().filter_map(move |table| Some((table, table.column(title)?)))
    }
}

/// Returns the code spans in a cell or a line.
pub fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the name that a heading has as the target of a link.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[derive(Default)]
struct Reader {
    document: Document,
    line: usize,
    /// Text of the open cell or heading.
    text: String,
    row: Row,
    heading: String,
    in_heading: bool,
    in_fence: bool,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_fence => {
                if let Some(fence) = self.document.fences.last_mut() {
                    fence.text.push_str(&text);
                }
            }
            Event::Text(text) => {
                self.document.prose.push((self.line, text.to_string()));
                self.text.push_str(&text);
            }
            Event::Code(code) => {
                self.document.code.push((self.line, code.to_string()));
                self.text.push_str(&format!("`{code}`"));
            }
            Event::SoftBreak | Event::HardBreak => self.text.push(' '),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Table(_) => self.document.tables.push(Table::default()),
            Tag::TableHead | Tag::TableRow => self.row = Row { line: self.line, cells: vec![] },
            Tag::TableCell => self.text.clear(),
            Tag::Heading { .. } => {
                self.in_heading = true;
                self.text.clear();
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.document.links.push((self.line, dest_url.to_string()));
            }
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    pulldown_cmark::CodeBlockKind::Fenced(language) => language.to_string(),
                    pulldown_cmark::CodeBlockKind::Indented => String::new(),
                };
                let (line, under) = (self.line + 1, self.heading.clone());
                let fence = Fence { line, language, text: String::new(), under };
                self.document.fences.push(fence);
                self.in_fence = true;
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::TableCell => self.row.cells.push(self.text.trim().to_string()),
            TagEnd::TableHead => {
                if let Some(table) = self.document.tables.last_mut() {
                    table.head = core::mem::take(&mut self.row);
                }
            }
            TagEnd::TableRow => {
                if let Some(table) = self.document.tables.last_mut() {
                    table.rows.push(core::mem::take(&mut self.row));
                }
            }
            TagEnd::Heading(_) if self.in_heading => {
                self.in_heading = false;
                self.heading = self.text.clone();
                self.document.anchors.push(anchor(&self.text));
            }
            TagEnd::CodeBlock => self.in_fence = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_taken_apart_with_its_lines() {
        // Fails if a rule pointed at the wrong line, or took code for a link.
        let text = "# Set-up, and more\n\n| A | B |\n|---|---|\n| `x.rs` and | [y](y.md) |\n\n\
                    ```sh\nls [z](z.md)\n```\n\nText `a/b.rs`.\n";
        let document = Document::parse(text);
        let (table, column) = document.tables_with("B").next().unwrap();
        assert_eq!((column, table.rows[0].line), (1, 5));
        assert_eq!(table.rows[0].cells, ["`x.rs` and", "y"]);
        assert_eq!(document.links, [(5, "y.md".to_string())]);
        assert_eq!(document.code[1], (11, "a/b.rs".to_string()));
        assert_eq!(document.fences[0].text, "ls [z](z.md)\n");
        assert_eq!((document.fences[0].line, &*document.fences[0].under), (8, "Set-up, and more"));
        assert_eq!(document.anchors, ["set-up-and-more"]);
    }
}
