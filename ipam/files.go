package ipam

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Files are the objects of a Ledger's stored form, as they are known to be stored, and what is to
// be changed in them. Every write replaces one object that is still as it is known here; whoever
// finds it changed reads everything again and begins anew.
//
// The order of the writes is the protocol by which shards are safe:
//   - A shard guards only while its object has the generation that the root names. Nobody writes
//     an object of another.
//   - Whatever the root says of a shard, it says under a new generation, after the shard's object
//     was read, and the object gets it after that. So whoever writes a shard knows its blocks: what
//     he knows of the root was true when the object got its generation.
//   - A line leaves the root only when the shards have what they guard of it.
//   - Before the root lists a shard no more, its object gets a generation that the root never
//     named, with everything in it left: whoever goes on from an older root can't write it.
//
// Where the root is lost nobody else is left, and it is written last.
type Files struct {
	ledger  *Ledger
	objects map[int]*file
	places  map[string][]int // by name, the objects that have it stored or are to have it, and maybe more
	listed  map[int]int      // the generations that the stored root gives
	layout  layout           // by the stored root
	filled  map[int]string   // where the root is lost: the blocks of shards that have what they should
	turn    int              // of the cursors
	settled int              // as of when the stored root is known to list what it should
}

// A Write is what one object is to become.
type Write struct {
	Object  int
	Entries map[string]string
	// Names are those of which something else is stored so far.
	Names []string
	// Open asks for the object as it is, made without entries if there is none; it is a shard that
	// the root doesn't list. Nothing is written.
	Open bool
	// Opens tells that all that the object has may be recorded from now on, new or not.
	Opens bool

	fills string
}

// NewFiles says that these entries are what is stored of the objects that the root lists. An
// object that isn't there, or that isn't known, is nil.
func NewFiles(l *Ledger, objects map[int]map[string]string) *Files {
	f := &Files{ledger: l, objects: map[int]*file{}, places: map[string][]int{}, filled: map[int]string{}, settled: -1}
	for number, entries := range objects {
		f.is(number, entries)
		for key, text := range entries {
			if strings.HasPrefix(key, CursorPrefix) {
				c, _ := ParseCursor(text)
				f.turn = max(f.turn, c.Turn)
			}
		}
	}
	f.readRoot()
	return f
}

func (f *Files) file(object int) *file {
	if f.objects[object] == nil {
		f.objects[object] = &file{pending: map[string]string{}}
	}
	return f.objects[object]
}

// readRoot takes in what the stored root lists.
func (f *Files) readRoot() {
	f.listed, f.layout = map[int]int{}, layout{}
	for key, text := range f.file(RootObject).stored {
		number, ok := parseNumber(key)
		if !ok {
			continue
		}
		generation, blocks, err := parseListing(text)
		if err != nil {
			continue // ParseStored has complained
		}
		f.listed[number] = generation
		for _, b := range blocks {
			f.layout.add(number, b)
		}
	}
}

// Update has every object get what the Ledger has under a name, and says by when.
func (f *Files) Update(name string, by time.Time) {
	lines := f.ledger.Records(name)
	for object := range lines {
		f.place(name, object)
	}
	for _, object := range f.places[name] {
		f.file(object).set(name, lines[object], by)
	}
}

// is takes in what an object has.
func (f *Files) is(object int, entries map[string]string) {
	f.file(object).is(entries)
	for key := range entries {
		if isName(key) {
			f.place(key, object)
		}
	}
}

// place notes that an object has a name, or is to have it. So nobody has to look for it in all.
func (f *Files) place(name string, object int) {
	if !slices.Contains(f.places[name], object) {
		f.places[name] = append(f.places[name], object)
	}
}

// displace forgets the objects that have a name no more.
func (f *Files) displace(name string) {
	left := slices.DeleteFunc(f.places[name], func(object int) bool { return !f.file(object).has(name) })
	if len(left) == 0 {
		delete(f.places, name)
	} else {
		f.places[name] = left
	}
}

// writable are the names that an object could be brought up to date in now.
func (f *Files) writable(object int) []string {
	return slices.DeleteFunc(f.file(object).differences(), func(name string) bool { return !f.goes(object, name) })
}

// ready reports whether there is any. It is asked after each change, and looks no further than
// the first.
func (f *Files) ready(object int) bool {
	file := f.file(object)
	for name, text := range file.pending {
		if text == file.stored[name] {
			delete(file.pending, name)
		} else if f.goes(object, name) {
			return true
		}
	}
	if len(file.pending) == 0 {
		file.due = time.Time{}
	}
	return false
}

// goes reports whether an object could be brought up to date in a name now: not where it would
// lose a line that another object doesn't have yet.
func (f *Files) goes(object int, name string) bool {
	if len(f.objects) == 1 || len(f.ledger.layout.shards) == 0 || object != RootObject && f.file(object).adds(name) {
		return true
	}
	return !slices.ContainsFunc(f.places[name], func(other int) bool { return other != object && f.file(other).adds(name) })
}

// generation is the one that a shard's object has, 0 if none.
func (f *Files) generation(number int) int {
	generation, _ := parseMark(f.file(number).stored[MarkKey])
	return generation
}

// open reports whether a shard guards something: its object is of the generation that the root
// gives.
func (f *Files) open(number int) bool {
	return f.listed[number] > 0 && f.generation(number) == f.listed[number]
}

// Recorded reports whether every object that has to have what a UID has is known to have exactly
// that.
func (f *Files) Recorded(uid string) bool {
	h, ok := f.ledger.holdings[uid]
	if !ok {
		return false
	}
	for _, p := range h.all() {
		if !slices.Equal(f.layout.guards(p), f.ledger.layout.guards(p)) {
			return false
		}
	}
	for object, line := range f.ledger.Record(uid) {
		stored := f.file(object).stored[h.node.Name]
		if object != RootObject && !f.open(object) || !slices.Contains(strings.Split(stored, "\n"), line) {
			return false
		}
	}
	return true
}

// Next is what is to be written next, and when: the zero time where something waits for it that
// the root is to list. It reports false where nothing is to be written.
func (f *Files) Next() (w Write, due time.Time, ok bool) {
	if w, ok := f.relist(); ok {
		return w, time.Time{}, true
	}
	object, due, ok := f.first()
	if !ok {
		return Write{}, time.Time{}, false
	}
	return f.write(object, f.generation(object)), due, true
}

// Due is when Next has something to be written, as far as can be said without making it up.
func (f *Files) Due() (due time.Time, ok bool) {
	if f.settled != f.ledger.layout.grown {
		return time.Time{}, true
	}
	_, due, ok = f.first()
	return due, ok
}

// first is the object that is to be brought up to date first.
func (f *Files) first() (object int, due time.Time, ok bool) {
	for number, file := range f.objects {
		if len(file.pending) == 0 || file.stored == nil && number != RootObject || ok && !file.due.Before(due) && (number > object || !file.due.Equal(due)) {
			continue
		}
		if f.ready(number) {
			object, due, ok = number, file.due, true
		}
	}
	return object, due, ok
}

// write is an object as it should be, of a generation.
func (f *Files) write(object, generation int) Write {
	file := f.file(object)
	w := Write{Object: object, Entries: file.entries(), Names: f.writable(object)}
	slices.Sort(w.Names)
	for name := range file.pending {
		if _, goes := slices.BinarySearch(w.Names, name); goes {
			continue
		}
		if w.Entries[name] = file.stored[name]; w.Entries[name] == "" {
			delete(w.Entries, name)
		}
	}
	spread := len(f.ledger.layout.shards) > 0
	if spread {
		f.turn++
	}
	for _, p := range f.ledger.pools {
		c := f.ledger.Cursor(p.Name)
		if spread {
			c.Turn = f.turn
		}
		if text := c.String(); text != "" {
			w.Entries[CursorPrefix+p.Name] = text
		}
	}
	if object != RootObject {
		w.Entries[MarkKey] = mark(generation)
		return w
	}
	for number, blocks := range f.ledger.layout.shards {
		w.Entries[shardKey(number)] = listing(f.generation(number), blocks)
	}
	return w
}

// Sent says that a write is on its way: what is asked for from now on is due when it says.
func (f *Files) Sent(w Write) {
	if len(w.Names) > 0 {
		f.file(w.Object).due = time.Time{}
	}
}

// Wrote says that a write was carried out. What was asked for meanwhile stays pending.
func (f *Files) Wrote(w Write) {
	f.is(w.Object, w.Entries)
	for _, name := range w.Names {
		f.displace(name)
	}
	if w.fills != "" {
		f.filled[w.Object] = w.fills
	}
	if w.Object == RootObject {
		f.readRoot()
	}
}

// Opened says what an object has that Next asked to open. Lines that are left there from before
// are taken out with the next write, which fills it.
func (f *Files) Opened(object int, entries map[string]string) {
	if entries == nil {
		entries = map[string]string{}
	}
	if generation, _ := parseMark(entries[MarkKey]); generation > maxGeneration {
		// The root names none of this object, so any is new that Underlay never comes to.
		entries = maps.Clone(entries)
		entries[MarkKey] = mark(maxGeneration / 2)
	}
	f.is(object, entries)
	for name := range entries {
		if isName(name) {
			f.Update(name, time.Time{})
		}
	}
}

// Stored are the entries that an object is known to have.
func (f *Files) Stored(object int) map[string]string { return f.file(object).stored }

// Pending is how many names wait to be written.
func (f *Files) Pending() (n int) {
	for _, file := range f.objects {
		n += len(file.pending)
	}
	return n
}

// Size is how many bytes of lines and names an object should have, and how many names.
func (f *Files) Size(object int) (bytes, names int) {
	file := f.file(object)
	return file.size, file.names
}

// Largest is how many bytes of lines and names the largest object should have.
func (f *Files) Largest() (bytes int) {
	for _, file := range f.objects {
		bytes = max(bytes, file.size)
	}
	return bytes
}

// Fits reports whether the lines of an object have at most so many bytes.
func (f *Files) Fits(object, limit int) bool {
	return f.file(object).text <= limit
}

// Total is how many bytes all lines and names have together.
func (f *Files) Total() (bytes int) {
	for _, file := range f.objects {
		bytes += file.size
	}
	return bytes
}

// Guarding is the number of shards that the root should list.
func (f *Files) Guarding() int { return len(f.ledger.layout.shards) }
