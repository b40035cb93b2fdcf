package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// fakeAPI is an API server with the objects of this controller. It checks each write against the
// invariants, and rejects every request that the controller must not send.
type fakeAPI struct {
	fakeapi.History
	services, nodes, slices, namespaces, maps *fakeapi.Collection

	uids     int
	calls    map[string]int // requests by "VERB resource"
	log      []string
	breaches []string
}

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{calls: map[string]int{}}
	f.services, f.nodes = f.Collection("v1", "Service"), f.Collection("v1", "Node")
	f.slices, f.namespaces = f.Collection("discovery.k8s.io/v1", "EndpointSlice"), f.Collection("v1", "Namespace")
	f.maps = f.Collection("v1", "ConfigMap")
	return f
}

func (f *fakeAPI) collection(resource string) *fakeapi.Collection {
	return map[string]*fakeapi.Collection{
		"services": f.services, "nodes": f.nodes, "endpointslices": f.slices, "namespaces": f.namespaces, "configmaps": f.maps,
	}[resource]
}

// note adds a line to the history. The caller holds the lock.
func (f *fakeAPI) note(format string, args ...any) {
	f.log = append(f.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// breach records a violation. The caller holds the lock.
func (f *fakeAPI) breach(format string, args ...any) {
	f.note("BREACH "+format, args...)
	f.breaches = append(f.breaches, f.log[len(f.log)-1])
}

// put creates or replaces an object, as another client would, and sets a missing UID.
func (f *fakeAPI) put(resource string, o fakeapi.Object) {
	f.Lock()
	defer f.Unlock()
	c := f.collection(resource)
	kind := watch.Modified
	if c.Objects[o.GetName()] == nil {
		kind = watch.Added
		if f.uids++; o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", f.uids)))
		}
		if created := o.GetCreationTimestamp(); created.IsZero() {
			o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Duration(f.uids) * time.Second)))
		}
	}
	c.Put(kind, o)
	f.note("%s %s %s", kind, resource, o.GetName())
}

func editObject[T fakeapi.Object](f *fakeAPI, resource, name string, edit func(T)) {
	f.Lock()
	o, ok := f.collection(resource).Objects[name].DeepCopyObject().(T)
	f.Unlock()
	if !ok {
		panic("no " + resource + " " + name)
	}
	edit(o)
	f.put(resource, o)
}

func (f *fakeAPI) remove(resource, name string) {
	f.Lock()
	defer f.Unlock()
	c := f.collection(resource)
	c.Put(watch.Deleted, c.Objects[name].DeepCopyObject().(fakeapi.Object))
	f.note("deleted %s %s", resource, name)
}

// service returns a copy of the current Service.
func (f *fakeAPI) service(name string) *corev1.Service {
	f.Lock()
	defer f.Unlock()
	svc, _ := f.services.Objects[name].(*corev1.Service)
	return svc.DeepCopy()
}

// ledger returns the stored ledger.
func (f *fakeAPI) ledger() addresses.Ledger {
	f.Lock()
	defer f.Unlock()
	return f.stored()
}

func (f *fakeAPI) stored() addresses.Ledger {
	live, _ := f.maps.Objects[addresses.LedgerName].(*corev1.ConfigMap)
	if live == nil {
		return addresses.Ledger{}
	}
	l, err := addresses.ParseLedger([]byte(live.Data[addresses.LedgerKey]))
	if err != nil {
		return addresses.Ledger{}
	}
	return l
}

// count returns the number of requests of these kinds since the last call.
func (f *fakeAPI) count(kinds ...string) (n int) {
	f.Lock()
	defer f.Unlock()
	for _, kind := range kinds {
		n += f.calls[kind]
		delete(f.calls, kind)
	}
	return n
}

// written returns the number of writes of any kind since the last call.
func (f *fakeAPI) written() int {
	return f.count("PATCH services/status", "PUT configmaps", "POST configmaps")
}

type call struct{ kind, name string }

func identify(req *http.Request) call {
	path := strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, "/api/v1/"), "/apis/discovery.k8s.io/v1/")
	parts := strings.Split(path, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	c := call{kind: req.Method + " " + parts[0]}
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		c.kind += "/" + parts[2]
	}
	if req.Method == http.MethodGet && c.name == "" {
		c.kind = "LIST " + parts[0]
		if req.URL.Query().Get("watch") != "" {
			c.kind = "WATCH " + parts[0]
		}
	}
	return c
}

var errConnection = errors.New("fake: connection lost")

// answer executes a request.
func (f *fakeAPI) answer(req *http.Request) (*http.Response, error) {
	body, err := fakeapi.ReadBody(req)
	if err != nil {
		return nil, err
	}
	c := identify(req)
	verb, resource, _ := strings.Cut(c.kind, " ")
	if verb == "WATCH" {
		return f.Watch(req, f.collection(resource)), nil
	}
	f.Lock()
	defer f.Unlock()
	f.calls[c.kind]++
	switch c.kind {
	case "LIST services", "LIST nodes", "LIST endpointslices", "LIST namespaces":
		return fakeapi.Reply(f.List(req, f.collection(resource)), nil)
	case "GET services", "GET configmaps":
		if o := f.collection(resource).Objects[c.name]; o != nil {
			return fakeapi.Reply(o, nil)
		}
		return fakeapi.Reply(nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, c.name))
	case "PATCH services/status":
		return fakeapi.Reply(f.patch(c.name, body))
	case "PUT configmaps", "POST configmaps":
		return fakeapi.Reply(f.store(verb, body))
	}
	panic(fmt.Sprintf("fake: the controller must not send %s %s", req.Method, req.URL))
}

func (f *fakeAPI) patch(name string, patch []byte) (any, error) {
	resource := schema.GroupResource{Resource: "services"}
	old, _ := f.services.Objects[name].(*corev1.Service)
	if old == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	var given struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &given); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if given.Metadata.UID == "" || given.Metadata.ResourceVersion == "" {
		f.breach("a patch of %s is for any version", name)
	}
	if given.Metadata.UID != old.UID || given.Metadata.ResourceVersion != old.ResourceVersion {
		return nil, apierrors.NewConflict(resource, name, errors.New("fake: another version"))
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Service{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	svc := &corev1.Service{}
	if err := json.Unmarshal(after, svc); err != nil {
		return nil, err
	}
	f.services.Put(watch.Modified, svc)
	f.note("status of %s: %v", name, shown(svc))
	f.judgeStatus(svc)
	return svc, nil
}

func (f *fakeAPI) store(verb string, body []byte) (any, error) {
	resource := schema.GroupResource{Resource: "configmaps"}
	next := &corev1.ConfigMap{}
	if err := json.Unmarshal(body, next); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if next.Name != addresses.LedgerName || next.Namespace != "kube-system" {
		panic("fake: the controller must not write ConfigMap " + next.Namespace + "/" + next.Name)
	}
	old, _ := f.maps.Objects[addresses.LedgerName].(*corev1.ConfigMap)
	switch {
	case verb == "POST" && old != nil:
		return nil, apierrors.NewAlreadyExists(resource, addresses.LedgerName)
	case verb == "PUT" && old == nil:
		return nil, apierrors.NewNotFound(resource, addresses.LedgerName)
	case verb == "PUT" && old.ResourceVersion != next.ResourceVersion:
		return nil, apierrors.NewConflict(resource, addresses.LedgerName, errors.New("fake: another version"))
	}
	kind := watch.Modified
	if old == nil {
		kind = watch.Added
		f.uids++
		next.UID = types.UID(fmt.Sprintf("uid-%d", f.uids))
	}
	before := f.stored()
	f.maps.Put(kind, next)
	f.note("ledger %s", next.Data[addresses.LedgerKey])
	f.judgeLedger(before, old != nil)
	return next, nil
}

// judgeStatus verifies that a Service's status has only addresses of the ledger, and no other
// Service's status has them unless the ledger gives them to both.
func (f *fakeAPI) judgeStatus(svc *corev1.Service) {
	l := f.stored()
	for _, a := range shown(svc) {
		if !slices.Contains(l.Of(string(svc.UID)), a) {
			f.breach("Service %s shows %s, which is not stored", svc.Name, a)
		}
		for _, o := range f.services.All() {
			other := o.(*corev1.Service)
			if other.UID != svc.UID && slices.Contains(shown(other), a) &&
				!slices.Contains(l.Of(string(other.UID)), a) {
				f.breach("Services %s and %s show %s", svc.Name, other.Name, a)
			}
		}
	}
}

// judgeLedger verifies that a new holder has a higher epoch than all before, and that a Service
// that requests an address keeps it.
func (f *fakeAPI) judgeLedger(before addresses.Ledger, existed bool) {
	after := make(map[netip.Addr]addresses.Entry)
	for _, e := range f.stored().Entries() {
		after[e.Address] = e
	}
	for _, e := range before.Entries() {
		now, there := after[e.Address]
		if there && existed && now.Holder != e.Holder && now.Epoch <= e.Epoch {
			f.breach("%s has epoch %d with holder %q and %d with %q", e.Address, e.Epoch, e.Holder, now.Epoch, now.Holder)
		}
		for _, s := range e.Shares {
			svc, _ := f.services.Objects[s.Name].(*corev1.Service)
			kept := slices.ContainsFunc(now.Shares, func(o addresses.Share) bool { return o.UID == s.UID })
			if !kept && svc != nil && string(svc.UID) == s.UID && Ours(svc, true) && slices.Contains(families(svc), addresses.FamilyOf(e.Address)) && svc.Annotations[annotationAddresses] == "" && svc.Annotations[annotationPool] == "" {
				f.breach("Service %s loses %s, which it wants", s.Name, e.Address)
			}
		}
	}
}

// line is a process's connection: its watches can be blocked, and its requests can fail.
type line struct {
	api *fakeAPI

	mu     sync.Mutex
	held   chan struct{} // if not nil, watches deliver nothing
	faults func(call) fault
}

// fault is the failure of a request.
type fault struct {
	refuse bool          // not applied, the reply is 503
	lose   bool          // applied, and the connection breaks
	drop   bool          // not applied, and the connection breaks
	delay  time.Duration // before everything else
	then   func()        // is called after the request was answered
}

func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	c := identify(req)
	var what fault
	l.mu.Lock()
	if l.faults != nil && !strings.HasPrefix(c.kind, "WATCH") {
		what = l.faults(c)
	}
	l.mu.Unlock()
	if !fakeapi.Elapse(req.Context().Done(), what.delay) {
		return nil, req.Context().Err()
	}
	switch {
	case what.refuse:
		return fakeapi.Reply(nil, apierrors.NewServiceUnavailable("fake: refused"))
	case what.drop:
		return nil, errConnection
	}
	answer, err := l.api.answer(req)
	if what.then != nil {
		what.then()
	}
	if what.lose {
		return nil, errConnection
	}
	if err == nil && strings.HasPrefix(c.kind, "WATCH") {
		answer.Body = &heldUp{answer.Body, l}
	}
	return answer, err
}

// hold blocks the watches of the process until release.
func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
}

func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held)
	l.held = nil
}

func (l *line) inject(faults func(call) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = faults
}

type heldUp struct {
	io.ReadCloser
	line *line
}

func (h *heldUp) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.line.mu.Lock()
	held := h.line.held
	h.line.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err
}

// All returns the current objects of a kind.
func (f *fakeAPI) All(resource string) []fakeapi.Object {
	f.Lock()
	defer f.Unlock()
	return f.collection(resource).All()
}
