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
	// fileLimit is how many bytes of keys and values the root may have. The API server refuses a
	// ConfigMap with more than 1 MiB.
	fileLimit = 1_000_000
	// storeLimit is how many bytes of values the API server lets a ConfigMap have.
	storeLimit = 1 << 20
	// fileMargin is more than any one Node adds to it.
	fileMargin = 1_000
	// farewell is what the end of a Node adds to its entry: all may end at once.
	farewell = 40
)

// Shards says how the stored ledger is spread over several ConfigMaps; the zero value: not at all,
// and if it is spread it goes back into one.
type Shards struct {
	// After is how many Nodes the root has before what is handed out goes to shards.
	After int
	// BlockBits is the size of a shard's block, as in [ipam.Facts].
	BlockBits int
}

// ledgerFiles are the stored ledger's ConfigMaps as they are known to be, and what is to be
// changed in them.
type ledgerFiles struct {
	*ipam.Files
	objects map[int]*corev1.ConfigMap // without their data
	made    time.Time                 // the root, by the API server's clock
	empty   bool                      // there was nothing in the root when it was read
}

func newLedgerFiles(l *ipam.Ledger, s stored) *ledgerFiles {
	f := &ledgerFiles{Files: ipam.NewFiles(l, s.entries), objects: s.objects, empty: s.unrooted()}
	if s.exists() {
		f.made = s.objects[ipam.RootObject].CreationTimestamp.Time
	}
	return f
}

// known is what is stored, without one object that has to be read again.
func (f *ledgerFiles) known(but int) stored {
	s := stored{maps.Clone(f.objects), map[int]map[string]string{}}
	for object := range f.objects {
		s.entries[object] = f.Stored(object)
	}
	delete(s.objects, but)
	return s
}

// exists reports whether there is a root.
func (f *ledgerFiles) exists() bool { return f.objects[ipam.RootObject] != nil }

// fits reports whether the API server would store the root.
func (f *ledgerFiles) fits() bool { return f.Fits(ipam.RootObject, storeLimit) }

// full reports whether one more Node might not fit into the root.
func (f *ledgerFiles) full() bool {
	bytes, names := f.Size(ipam.RootObject)
	return bytes+farewell*names+fileMargin > fileLimit
}

// gatherable reports whether all would fit into the root.
func (f *ledgerFiles) gatherable() bool { return f.Total() <= fileLimit }

// crowded reports whether the root has so many Nodes that some should go to a shard.
func (f *ledgerFiles) crowded(after int) bool {
	_, names := f.Size(ipam.RootObject)
	return names >= 2*after
}

// order describes a write that goes out now.
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

// took records that an order was carried out.
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

// parse reads all entries, or names the first that is damaged.
func (s stored) parse() (ipam.Stored, error) {
	found, damaged := ipam.ParseStored(s.entries)
	if len(damaged) > 0 && strings.HasPrefix(damaged[0].Key, ipam.MarkKey) {
		return ipam.Stored{}, fmt.Errorf("the stored ledger is damaged at %w. Correct that key with kubectl edit; don't delete it: it says who may hand out what. Where it can't be corrected, delete the ConfigMap %s: everything is read again then, after a wait", damaged[0], LedgerName)
	}
	if len(damaged) > 0 {
		return ipam.Stored{}, fmt.Errorf("the stored ledger is damaged at %w. Correct that key with kubectl edit, or delete it: what its Node has on the API server is then taken as the truth", damaged[0])
	}
	return found, nil
}
