package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/routes"
)

// RecordName is the ConfigMap in kube-system with the routes that this cluster wrote or adopted.
const RecordName = "underlay-routes"

const (
	recordTimeout = 5 * time.Second
	// forgetAfter is how long a route must be missing in all lists of the table before the
	// record drops it: much longer than a request for it can be in flight.
	forgetAfter = 10 * time.Minute
)

// storedRecord is the record of routes: as stored, and with changes that are not stored yet.
type storedRecord struct {
	client kubernetes.Interface

	routes routes.Record
	loaded bool              // the stored record was read
	object *corev1.ConfigMap // last stored version; nil: none exists
	// missing has the time since when no list contained a route.
	missing map[routes.Route]time.Time
	err     error // of the last request
	pause         // after a failure
}

func newRecord(client kubernetes.Interface) *storedRecord {
	return &storedRecord{
		client: client, routes: routes.Record{}, missing: map[routes.Route]time.Time{},
		pause: pause{first: time.Second, longest: time.Minute},
	}
}

// load reads the stored record, once. If that fails, only the routes that this process wrote
// or adopted are ours, and no other route is deleted.
func (r *storedRecord) load(ctx context.Context, now time.Time) {
	if !r.loaded && r.left(now) == 0 {
		r.note(r.read(ctx), now)
	}
}

func (r *storedRecord) note(err error, now time.Time) {
	if r.err = err; err != nil {
		r.begin(now)
	} else {
		r.end()
	}
}

// read adds the stored routes. Entries that can't be parsed are removed with the next write.
func (r *storedRecord) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	live, err := r.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, RecordName,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.loaded, r.object = true, nil
		return nil
	case err != nil:
		return fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	r.loaded, r.object = true, live
	stored, err := routes.ParseRecord(live.Data)
	if err != nil {
		err = fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	maps.Copy(r.routes, stored)
	return err
}

// listed takes a list of the table and the time of its request.
func (r *storedRecord) listed(table []routes.Route, requested time.Time) {
	stands := make(map[routes.Route]bool, len(table))
	for _, route := range table {
		stands[route] = true
	}
	for route := range r.routes {
		if _, before := r.missing[route]; stands[route] {
			delete(r.missing, route)
		} else if !before {
			r.missing[route] = requested
		}
	}
}

// keep adds routes, drops those that have long been missing, and stores the result in one
// write if it has changed. If that fails, this process has the routes and stores them later.
func (r *storedRecord) keep(ctx context.Context, wanted []routes.Route, now time.Time) {
	for route, since := range r.missing {
		if now.Sub(since) > forgetAfter {
			delete(r.routes, route)
			delete(r.missing, route)
		}
	}
	for _, route := range wanted {
		r.routes[route] = true
		delete(r.missing, route) // it exists, or is about to be requested
	}
	var stored map[string]string
	if r.object != nil {
		stored = r.object.Data
	}
	if !maps.Equal(r.routes.Text(), stored) && r.left(now) == 0 {
		r.note(r.store(ctx), now)
	}
}

// store writes the record at the version that was read. After a conflict it merges first.
func (r *storedRecord) store(ctx context.Context) error {
	if r.loaded {
		err := r.write(ctx)
		if err == nil ||
			!apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := r.read(ctx); !r.loaded {
		return err
	}
	return r.write(ctx)
}

func (r *storedRecord) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	configMaps := r.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	var live *corev1.ConfigMap
	var err error
	if r.object == nil {
		live, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: RecordName, Namespace: metav1.NamespaceSystem,
				Labels:      map[string]string{"app.kubernetes.io/part-of": "underlay"},
				Annotations: map[string]string{"underlay.dev/about": "Which routes of the cloud's network this cluster wrote or adopted, by destination. Only these are ever deleted. Don't delete: routes of Nodes that are gone would stay."},
			},
			Data: r.routes.Text(),
		}, metav1.CreateOptions{})
	} else {
		changed := r.object.DeepCopy()
		changed.Data = r.routes.Text()
		live, err = configMaps.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		// It may have been applied all the same.
		r.loaded = false
		return fmt.Errorf("writing ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	r.object = live
	return nil
}
