package ipam

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Files plans the writes of a Ledger's stored form: it has the last observed entries of each
// object and the changes pending for them. Every write replaces one object at the version observed
// here. A writer that finds an object changed must read all objects again and rebuild.
//
// The order of the writes is the protocol that makes shards safe:
//   - A shard guards its blocks only while its object has the generation that the root gives.
//     An object of any other generation is not written.
//   - Every change of the root's line for a shard has a new generation. The root is written
//     after the shard's object was read, and the object gets the generation after that. So a
//     process that writes a shard has its current blocks: its copy of the root was current
//     when the object got its generation.
//   - A line is removed from the root only when the shards have the parts of it that they guard.
//   - Before the root stops listing a shard, the shard's object gets a generation that the root
//     never gave, and keeps all its entries: a process with an older root can't write it any more.
//
// A lost root is written last. The caller must have waited until no other process can write.
type Files struct {
	ledger  *Ledger
	objects map[int]*file
	places  map[string][]int // by name: the objects that have or are to have it, maybe more
	listed  map[int]int      // the generations that the stored root gives
	layout  layout           // of the stored root
	filled  map[int]string   // if the root is lost: the blocks of shards with complete objects
	turn    int              // latest Turn of the cursors
	settled int              // layout.grown when the stored root last listed what it should
}

// A Write is the desired content of one object.
type Write struct {
	Object  int
	Entries map[string]string
	// Names lists the entries that the write changes.
	Names []string
	// Open requests the object of a shard that the root doesn't list, created without entries
	// if it doesn't exist. Nothing else is written.
	Open bool
	// Opens means that afterwards every entry of the object may count as recorded, old ones too.
	Opens bool

	fills string
}

// NewFiles returns the Files for these stored entries, nil for an object missing or not read.
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

// readRoot parses the shards that the stored root lists.
func (f *Files) readRoot() {
	f.listed, f.layout = map[int]int{}, layout{}
	for key, text := range f.file(RootObject).stored {
		number, ok := parseNumber(key)
		if !ok {
			continue
		}
		generation, blocks, err := parseListing(text)
		if err != nil {
			continue // ParseStored has reported it
		}
		f.listed[number] = generation
		for _, b := range blocks {
			f.layout.add(number, b)
		}
	}
}

// Update marks a name as pending in every object with a changed line, to be written by then.
func (f *Files) Update(name string, by time.Time) {
	lines := f.ledger.Records(name)
	for object := range lines {
		f.place(name, object)
	}
	for _, object := range f.places[name] {
		f.file(object).set(name, lines[object], by)
	}
}

func (f *Files) is(object int, entries map[string]string) {
	f.file(object).is(entries)
	for key := range entries {
		if isName(key) {
			f.place(key, object)
		}
	}
}

// place adds an object to the index of names, so that Update needn't search all objects.
func (f *Files) place(name string, object int) {
	if !slices.Contains(f.places[name], object) {
		f.places[name] = append(f.places[name], object)
	}
}

// displace removes the objects that no longer have a name from the index.
func (f *Files) displace(name string) {
	left := slices.DeleteFunc(f.places[name], func(object int) bool { return !f.file(object).has(name) })
	if len(left) == 0 {
		delete(f.places, name)
	} else {
		f.places[name] = left
	}
}

// writable returns the names that can be updated in an object now.
func (f *Files) writable(object int) []string {
	return slices.DeleteFunc(f.file(object).differences(), func(name string) bool { return !f.goes(object, name) })
}

// ready reports whether an object has a writable name. It runs after each change.
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

// goes reports whether a name can be updated in an object now. It can't if the object would
// lose a line that another object doesn't have yet.
func (f *Files) goes(object int, name string) bool {
	if len(f.objects) == 1 || len(f.ledger.layout.shards) == 0 || object != RootObject && f.file(object).adds(name) {
		return true
	}
	return !slices.ContainsFunc(f.places[name], func(other int) bool { return other != object && f.file(other).adds(name) })
}

func (f *Files) generation(number int) int {
	generation, _ := parseMark(f.file(number).stored[MarkKey])
	return generation
}

// open reports whether a shard guards its blocks: its generation is the one that the root gives.
func (f *Files) open(number int) bool {
	return f.listed[number] > 0 && f.generation(number) == f.listed[number]
}

// Recorded reports whether every object that guards a prefix of this UID has exactly its line.
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
		if object != RootObject && !f.open(object) || stored != line && !slices.Contains(strings.Split(stored, "\n"), line) {
			return false
		}
	}
	return true
}

// Next returns the next write and when it is due: the zero time if other changes wait for the
// root to list a shard. It reports false if there is nothing to write.
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

// Due returns when Next has a write, without building that write.
func (f *Files) Due() (due time.Time, ok bool) {
	if f.settled != f.ledger.layout.grown {
		return time.Time{}, true
	}
	_, due, ok = f.first()
	return due, ok
}

// first returns the object with the earliest due change, the lowest number first.
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

// write returns the desired content of an object at a generation, without changes that must wait.
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

// Sent records that a write was sent: later changes of the object get their own due time.
func (f *Files) Sent(w Write) {
	if len(w.Names) > 0 {
		f.file(w.Object).due = time.Time{}
	}
}

// Wrote records that a write succeeded. Changes made after it was sent stay pending.
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

// Opened records the entries of an opened object. The next write, which fills it, replaces them.
func (f *Files) Opened(object int, entries map[string]string) {
	if entries == nil {
		entries = map[string]string{}
	}
	if generation, _ := parseMark(entries[MarkKey]); generation > maxGeneration {
		// The root gives no generation for this object, so any plausible one is new.
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

// Stored returns the last observed entries of an object.
func (f *Files) Stored(object int) map[string]string { return f.file(object).stored }

// Pending returns the number of changes that wait to be written.
func (f *Files) Pending() (n int) {
	for _, file := range f.objects {
		n += len(file.pending)
	}
	return n
}

// Size returns the desired size of an object in bytes of lines and names, and its number of names.
func (f *Files) Size(object int) (bytes, names int) {
	file := f.file(object)
	return file.size, file.names
}

// Largest returns the desired size in bytes of the largest object.
func (f *Files) Largest() (bytes int) {
	for _, file := range f.objects {
		bytes = max(bytes, file.size)
	}
	return bytes
}

// Fits reports whether the lines of an object have at most limit bytes.
func (f *Files) Fits(object, limit int) bool {
	return f.file(object).text <= limit
}

// Total returns the desired size in bytes of all objects.
func (f *Files) Total() (bytes int) {
	for _, file := range f.objects {
		bytes += file.size
	}
	return bytes
}

// Guarding returns the number of shards that the root should list.
func (f *Files) Guarding() int { return len(f.ledger.layout.shards) }
