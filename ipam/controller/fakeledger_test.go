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
)

const (
	ledgerNamespace = "kube-system"
	ledgerName      = "underlay-node-ipam"
)

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// A configMap keeps the ConfigMap as the API server does.
type configMap struct {
	object  *corev1.ConfigMap // nil: there is none
	version int               // of the whole store: a ConfigMap made anew has never been at an old one
	made    int
	limit   int // bytes of all values together; the API server's is 1 MiB
}

// replace puts data in place.
func (s *configMap) replace(data map[string]string) {
	if s.object == nil {
		s.made++
		s.object = &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: ledgerName, Namespace: ledgerNamespace, UID: types.UID(fmt.Sprintf("map-%d", s.made)),
				CreationTimestamp: metav1.Now(),
			},
		}
	} else if maps.Equal(s.object.Data, data) {
		return // nothing changes, so neither does the resource version
	}
	s.version++
	s.object = s.object.DeepCopy()
	s.object.ResourceVersion = strconv.Itoa(s.version)
	s.object.Data = maps.Clone(data)
}

// valid says what the API server thinks of the data.
func (s *configMap) valid(data map[string]string) error {
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
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, ledgerName, errs)
	}
	return nil
}

// create does what a POST does.
func (s *configMap) create(body []byte) (*corev1.ConfigMap, error) {
	var wanted corev1.ConfigMap
	if err := json.Unmarshal(body, &wanted); err != nil {
		panic(fmt.Sprintf("fake: the controller must not create this: %s", body))
	}
	if wanted.Name != ledgerName || wanted.Namespace != ledgerNamespace && wanted.Namespace != "" || len(wanted.BinaryData) > 0 {
		panic(fmt.Sprintf("fake: the controller must not create this: %s", body))
	}
	if s.object != nil {
		return nil, apierrors.NewAlreadyExists(configMapResource, ledgerName)
	}
	if err := s.valid(wanted.Data); err != nil {
		return nil, err
	}
	s.replace(wanted.Data)
	return s.object, nil
}

// update does what a PUT does: the whole is replaced, and a resource version that is not the
// current one is a conflict. Without one it would overwrite whatever is there.
func (s *configMap) update(body []byte) (*corev1.ConfigMap, error) {
	var wanted corev1.ConfigMap
	if err := json.Unmarshal(body, &wanted); err != nil || wanted.Name != ledgerName || len(wanted.BinaryData) > 0 {
		panic(fmt.Sprintf("fake: the controller must not put this: %s", body))
	}
	if s.object == nil {
		return nil, apierrors.NewNotFound(configMapResource, ledgerName)
	}
	if v := wanted.ResourceVersion; v != "" && v != s.object.ResourceVersion {
		return nil, apierrors.NewConflict(configMapResource, ledgerName, fmt.Errorf("at version %s, not %s", s.object.ResourceVersion, v))
	}
	if u := wanted.UID; u != "" && u != s.object.UID {
		return nil, apierrors.NewConflict(configMapResource, ledgerName, fmt.Errorf("has UID %s, not %s", s.object.UID, u))
	}
	if err := s.valid(wanted.Data); err != nil {
		return nil, err
	}
	s.replace(wanted.Data)
	return s.object, nil
}

// handleLedger answers a request about the ConfigMap.
func (f *fakeAPI) handleLedger(req *http.Request, body []byte) (any, error) {
	var object *corev1.ConfigMap
	var err error
	before, had := f.ledger.version, f.ledger.data()
	switch {
	case req.Method == http.MethodGet && f.ledger.object == nil:
		err = apierrors.NewNotFound(configMapResource, ledgerName)
	case req.Method == http.MethodGet:
		object = f.ledger.object
	case req.Method == http.MethodPost:
		object, err = f.ledger.create(body)
	case req.Method == http.MethodPut:
		if object, err = f.ledger.update(body); err == nil && len(object.Data) > 0 {
			f.invariants.ledgerMade()
		}
	default:
		panic(fmt.Sprintf("fake: the controller must not send %s %s", req.Method, req.URL.Path))
	}
	if req.Method != http.MethodGet {
		f.note("%s ledger, version %d -> %d, %v: %s", req.Method, before, f.ledger.version, err, differences(had, f.ledger.data()))
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

func (s *configMap) data() map[string]string {
	if s.object == nil {
		return nil
	}
	return s.object.Data
}

// differences prints the keys that changed, and what they hold now.
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

// stored returns what the ConfigMap holds, nil where there is none.
func (f *fakeAPI) stored() map[string]string {
	f.Lock()
	defer f.Unlock()
	if f.ledger.object == nil {
		return nil
	}
	return maps.Clone(f.ledger.object.Data)
}

// holders returns the keys of the ConfigMap that are names of Nodes.
func (f *fakeAPI) holders() []string {
	var names []string
	for key := range f.stored() {
		if !strings.HasPrefix(key, "_") {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// editLedger changes the ConfigMap by hand, making it if there is none.
func (f *fakeAPI) editLedger(change func(data map[string]string)) {
	f.Lock()
	defer f.Unlock()
	data := map[string]string{}
	if f.ledger.object != nil {
		maps.Copy(data, f.ledger.object.Data)
	}
	change(data)
	f.ledger.replace(data)
	f.note("ledger edited by hand, version %d", f.ledger.version)
}

// deleteLedger deletes the ConfigMap, as a person does. A creation that is still on its way arrives
// all the same.
func (f *fakeAPI) deleteLedger() {
	f.Lock()
	defer f.Unlock()
	f.ledger.object = nil
	f.invariants.ledgerLost()
	f.note("ledger deleted by hand")
}
