package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	ledgerNamespace = "kube-system"
	ledgerName      = "underlay-node-ipam"
)

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// configMaps stores the ConfigMaps of the ledger as the API server does.
type configMaps struct {
	objects map[string]*corev1.ConfigMap
	version int // of the whole store: a recreated ConfigMap never had an old version
	made    int
	limit   int // bytes of all values together; the API server's is 1 MiB
}

// replace sets the data of a ConfigMap, and creates the ConfigMap if it is missing.
func (s *configMaps) replace(name string, data map[string]string) {
	object := s.objects[name]
	if object == nil {
		s.made++
		object = &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: ledgerNamespace, UID: types.UID(fmt.Sprintf("map-%d", s.made)),
				CreationTimestamp: metav1.Now(),
			},
		}
	} else if maps.Equal(object.Data, data) {
		return // without a change the resource version stays the same
	}
	s.version++
	object = object.DeepCopy()
	object.ResourceVersion = strconv.Itoa(s.version)
	object.Data = maps.Clone(data)
	s.objects[name] = object
}

// valid validates the data as the API server does.
func (s *configMaps) valid(name string, data map[string]string) error {
	var errs field.ErrorList
	size := 0
	for key, value := range data {
		size += len(value)
		for _, problem := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, problem))
		}
	}
	if size > s.limit {
		errs = append(errs, field.TooLong(field.NewPath(""), "", s.limit))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, name, errs)
	}
	return nil
}

// isLedgerName reports whether the controller may write a ConfigMap of this name.
func isLedgerName(name string) bool {
	number, shard := strings.CutPrefix(name, ledgerName+"-")
	n, err := strconv.Atoi(number)
	return name == ledgerName || shard && err == nil && n >= 1 && n < ipam.Shards
}

// create handles a POST.
func (s *configMaps) create(body []byte) (*corev1.ConfigMap, error) {
	var wanted corev1.ConfigMap
	if err := json.Unmarshal(body, &wanted); err != nil {
		panic(fmt.Sprintf("fake: the controller must not create this: %s", body))
	}
	if !isLedgerName(wanted.Name) || wanted.Namespace != ledgerNamespace && wanted.Namespace != "" || len(wanted.BinaryData) > 0 {
		panic(fmt.Sprintf("fake: the controller must not create this: %s", body))
	}
	if s.objects[wanted.Name] != nil {
		return nil, apierrors.NewAlreadyExists(configMapResource, wanted.Name)
	}
	if err := s.valid(wanted.Name, wanted.Data); err != nil {
		return nil, err
	}
	s.replace(wanted.Name, wanted.Data)
	return s.objects[wanted.Name], nil
}

// update handles a PUT: it replaces the object, and fails with a conflict if the resource version
// isn't the current one. Without a resource version it would overwrite any version.
func (s *configMaps) update(name string, body []byte) (*corev1.ConfigMap, error) {
	var wanted corev1.ConfigMap
	if err := json.Unmarshal(body, &wanted); err != nil || wanted.Name != name ||
		len(wanted.BinaryData) > 0 {
		panic(fmt.Sprintf("fake: the controller must not put this: %s", body))
	}
	object := s.objects[name]
	if object == nil {
		return nil, apierrors.NewNotFound(configMapResource, name)
	}
	if v := wanted.ResourceVersion; v != "" && v != object.ResourceVersion {
		return nil, apierrors.NewConflict(configMapResource, name, fmt.Errorf("at version %s, not %s", object.ResourceVersion, v))
	}
	if u := wanted.UID; u != "" && u != object.UID {
		return nil, apierrors.NewConflict(configMapResource, name, fmt.Errorf("has UID %s, not %s", object.UID, u))
	}
	if err := s.valid(name, wanted.Data); err != nil {
		return nil, err
	}
	s.replace(name, wanted.Data)
	return s.objects[name], nil
}

func (f *fakeAPI) handleLedger(req *http.Request, name string, body []byte) (any, error) {
	var object *corev1.ConfigMap
	var err error
	before, had := f.ledger.version, f.ledger.data(name)
	switch {
	case req.Method == http.MethodGet && f.ledger.objects[name] == nil:
		err = apierrors.NewNotFound(configMapResource, name)
	case req.Method == http.MethodGet:
		object = f.ledger.objects[name]
	case req.Method == http.MethodPost:
		if object, err = f.ledger.create(body); object != nil {
			name = object.Name
		}
	case req.Method == http.MethodPut:
		if object, err = f.ledger.update(name, body); err == nil && f.ledger.whole() {
			f.invariants.ledgerMade()
		}
	default:
		panic(fmt.Sprintf("fake: the controller must not send %s %s", req.Method, req.URL.Path))
	}
	if req.Method != http.MethodGet {
		shown := "ledger" + strings.TrimPrefix(name, ledgerName)
		f.note("%s %s, version %d -> %d, %v: %s", req.Method, shown, before, f.ledger.version, err, differences(had, f.ledger.data(name)))
	}
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
			ObjectMeta: object.ObjectMeta,
		}, nil
	}
	return object, nil
}

// whole reports whether every ConfigMap has entries.
func (s *configMaps) whole() bool { return len(s.all().Lost()) == 0 }

// all returns the entries of all ConfigMaps.
func (s *configMaps) all() (objects ipam.Objects) {
	for object := range objects {
		objects[object] = s.data(ObjectName(object))
	}
	return objects
}

func (s *configMaps) data(name string) map[string]string {
	if s.objects[name] == nil {
		return nil
	}
	return s.objects[name].Data
}

// differences prints the changed keys with their new values.
func differences(before, after map[string]string) string {
	keys := slices.Collect(maps.Keys(after))
	for key := range before {
		if _, ok := after[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var changed []string
	for _, key := range keys {
		if before[key] != after[key] {
			changed = append(changed, fmt.Sprintf("%s=%q", key, after[key]))
		}
	}
	return strings.Join(changed, " ")
}

// stored returns the texts of Nodes in all ConfigMaps, by name; nil: there is no ledger.
func (f *fakeAPI) stored() map[string]string {
	f.Lock()
	defer f.Unlock()
	if len(f.ledger.objects) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, data := range f.ledger.all() {
		for key, text := range data {
			switch before, twice := all[key]; {
			case key == ipam.MarkKey:
			case twice:
				all[key] = before + "\n" + text
			default:
				all[key] = text
			}
		}
	}
	return all
}

// entries returns the entries of all ConfigMaps by Node name, each holding as one line.
func (f *fakeAPI) entries() map[string]string {
	f.Lock()
	defer f.Unlock()
	found, _ := ipam.ParseStored(f.ledger.all())
	lines := map[string]string{}
	for _, h := range found {
		if lines[h.Node.Name] != "" {
			lines[h.Node.Name] += "\n"
		}
		lines[h.Node.Name] += h.Record()
	}
	return lines
}

// holders returns the names of the Nodes that have entries, sorted.
func (f *fakeAPI) holders() []string { return slices.Sorted(maps.Keys(f.entries())) }

// shards returns the names of the ConfigMaps, sorted.
func (f *fakeAPI) shards() []string {
	f.Lock()
	defer f.Unlock()
	return slices.Sorted(maps.Keys(f.ledger.objects))
}

// objectOf returns the first ConfigMap with an entry of the Node.
func (f *fakeAPI) objectOf(node string) string {
	f.Lock()
	defer f.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.ledger.objects)) {
		if f.ledger.data(name)[node] != "" {
			return name
		}
	}
	return ledgerName
}

// objectWith returns the ConfigMap with an entry of the Node that contains a text.
func (f *fakeAPI) objectWith(node, text string) string {
	f.Lock()
	defer f.Unlock()
	for name := range f.ledger.objects {
		if strings.Contains(f.ledger.data(name)[node], text) {
			return name
		}
	}
	return ""
}

// editLedger edits the texts of Nodes by hand, each in the ConfigMap that has it, else in the first
// one. A missing ledger is made without Nodes.
func (f *fakeAPI) editLedger(change func(data map[string]string)) {
	before := f.stored()
	for object := range ipam.Shards {
		if before == nil {
			f.editObject(ObjectName(object), func(data map[string]string) {
				data[ipam.MarkKey] = ipam.Mark(object)
			})
		}
	}
	data := maps.Clone(before)
	if data == nil {
		data = map[string]string{}
	}
	change(data)
	for key := range before {
		if _, kept := data[key]; !kept {
			f.editObject(f.objectOf(key), func(entries map[string]string) { delete(entries, key) })
		}
	}
	for key, text := range data {
		if had, there := before[key]; !there || had != text {
			f.editObject(f.objectOf(key), func(entries map[string]string) { entries[key] = text })
		}
	}
}

// editObject edits a ConfigMap by hand, and creates it if it is missing.
func (f *fakeAPI) editObject(name string, change func(data map[string]string)) {
	f.Lock()
	defer f.Unlock()
	data := map[string]string{}
	maps.Copy(data, f.ledger.data(name))
	change(data)
	f.ledger.replace(name, data)
	f.note("%s edited by hand, version %d", name, f.ledger.version)
}

// deleteLedger deletes all ConfigMaps, as a user does. A creation in flight is still applied.
func (f *fakeAPI) deleteLedger() {
	for _, name := range f.shards() {
		f.deleteObject(name)
	}
}

// emptyLedger removes all entries of all ConfigMaps.
func (f *fakeAPI) emptyLedger() {
	for _, name := range f.shards() {
		f.editObject(name, func(data map[string]string) { clear(data) })
	}
}

func (f *fakeAPI) deleteObject(name string) {
	f.Lock()
	defer f.Unlock()
	delete(f.ledger.objects, name)
	f.invariants.ledgerLost()
	f.note("%s deleted by hand", name)
}
