package controller

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// fileLimit limits the bytes of keys and values in the root (API server: 1 MiB per ConfigMap).
	fileLimit = 1_000_000
	// storeLimit is the API server's limit on the bytes of values in a ConfigMap.
	storeLimit = 1 << 20
	// fileMargin is more than any single Node adds to the root.
	fileMargin = 1_000
	// farewell is what the deletion of a Node adds to its entry, in bytes. All may be deleted.
	farewell = 40
)

// Shards configures the sharding of the stored ledger. The zero value merges all into one object.
type Shards struct {
	// After is the number of Nodes in the root from which on new prefixes are guarded by shards.
	After int
	// BlockBits is the size of a shard's block, as in [ipam.Facts].
	BlockBits int
}

// ledgerFiles has the last observed ConfigMaps of the stored ledger and their pending changes.
type ledgerFiles struct {
	*ipam.Files
	objects map[int]*corev1.ConfigMap // without their data
	made    time.Time                 // creation of the root, by the API server's clock
	empty   bool                      // the root had no entries when it was read
}

func newLedgerFiles(l *ipam.Ledger, s stored) *ledgerFiles {
	f := &ledgerFiles{Files: ipam.NewFiles(l, s.entries), objects: s.objects, empty: s.unrooted()}
	if s.exists() {
		f.made = s.objects[ipam.RootObject].CreationTimestamp.Time
	}
	return f
}

// known returns the stored state without one object that has to be read again.
func (f *ledgerFiles) known(but int) stored {
	s := stored{maps.Clone(f.objects), map[int]map[string]string{}}
	for object := range f.objects {
		s.entries[object] = f.Stored(object)
	}
	delete(s.objects, but)
	return s
}

func (f *ledgerFiles) exists() bool { return f.objects[ipam.RootObject] != nil }

// fits reports whether the API server would store the root.
func (f *ledgerFiles) fits() bool { return f.Fits(ipam.RootObject, storeLimit) }

// full reports whether another Node might not fit into the root.
func (f *ledgerFiles) full() bool {
	bytes, names := f.Size(ipam.RootObject)
	return bytes+farewell*names+fileMargin > fileLimit
}

// gatherable reports whether all entries would fit into the root.
func (f *ledgerFiles) gatherable() bool { return f.Total() <= fileLimit }

// crowded reports whether the root has so many Nodes that some should move to a shard.
func (f *ledgerFiles) crowded(after int) bool {
	_, names := f.Size(ipam.RootObject)
	return names >= 2*after
}

// order returns the order for a write that is sent now.
func (f *ledgerFiles) order(w ipam.Write) order {
	if w.Open {
		return order{write: w}
	}
	object := f.objects[w.Object].DeepCopy()
	if len(object.ManagedFields) > 0 {
		object.ManagedFields = untracked()
	}
	object.Data = w.Entries
	f.Sent(w)
	return order{w, object}
}

func (f *ledgerFiles) took(r receipt) {
	if r.write.Open {
		f.Opened(r.write.Object, r.object.Data)
		r.object.Data = nil
	} else {
		f.Wrote(r.write)
	}
	f.objects[r.write.Object] = r.object
	if r.write.Object == ipam.RootObject {
		f.made, f.empty = r.object.CreationTimestamp.Time, r.write.Open
	}
}

// parse parses all entries. The error names the first damaged one.
func (s stored) parse() (ipam.Stored, error) {
	found, damaged := ipam.ParseStored(s.entries)
	if len(damaged) > 0 && strings.HasPrefix(damaged[0].Key, ipam.MarkKey) {
		return ipam.Stored{}, fmt.Errorf("the stored ledger is damaged at %w. Correct that key with kubectl edit; don't delete it: it guards the shards. Where it can't be corrected, delete the ConfigMap %s: everything is read again then, after a wait", damaged[0], LedgerName)
	}
	if len(damaged) > 0 {
		return ipam.Stored{}, fmt.Errorf("the stored ledger is damaged at %w. Correct that key with kubectl edit, or delete it: its Node's podCIDRs are then read from the API server", damaged[0])
	}
	return found, nil
}
