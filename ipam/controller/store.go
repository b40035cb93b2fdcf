package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// LedgerName is the name of the stored ledger's first ConfigMap, which gets its Events.
const LedgerName = "underlay-node-ipam"

// ObjectName returns the name of a shard's ConfigMap.
func ObjectName(object int) string {
	if object == 0 {
		return LedgerName
	}
	return fmt.Sprintf("%s-%d", LedgerName, object)
}

const (
	// storeTries limits the tries of a request that can be repeated before everything is read
	// again. storePause is the first pause between them, and doubles each time.
	storeTries = 4
	storePause = 100 * time.Millisecond
	// writers limits the writes of the stored ledger in flight.
	writers = 2
)

// Stored is the ledger as read from the API server; nil: no such ConfigMap, or not read.
type Stored [ipam.Shards]*corev1.ConfigMap

// Entries returns the entries of all ConfigMaps.
func (s Stored) Entries() (objects ipam.Objects) {
	for object, live := range s {
		if live != nil {
			objects[object] = live.Data
		}
	}
	return objects
}

// Made returns the creation of the oldest ConfigMap in use, by the API server's clock. It reports
// false if none has entries.
func (s Stored) Made() (at time.Time, ok bool) {
	for _, live := range s {
		if live == nil || len(live.Data) == 0 {
			continue
		}
		if created := live.CreationTimestamp.Time; !ok || created.Before(at) {
			at, ok = created, true
		}
	}
	return at, ok
}

// parse returns the stored holdings. The error names the first damaged entry.
func (s Stored) parse() ([]ipam.Holding, error) {
	found, damaged := ipam.ParseStored(s.Entries())
	switch {
	case len(damaged) == 0:
		return found, nil
	case damaged[0].Key == ipam.MarkKey:
		return nil,
			fmt.Errorf("the stored ledger (ConfigMap %s) is damaged at %w", ObjectName(damaged[0].Object),
				damaged[0])
	}
	return nil, fmt.Errorf("the stored ledger (ConfigMap %s) is damaged at %w. Correct that key with kubectl edit, "+
		"or delete it: its Node's podCIDRs are then read from the API server",
		ObjectName(damaged[0].Object), damaged[0])
}

// read gets the ConfigMaps, not from a cache, except those that are known: a write of one that has
// changed since is rejected.
func (a api) read(ctx context.Context, known Stored) (Stored, error) {
	var unknown []int
	for object, live := range known {
		if live == nil {
			unknown = append(unknown, object)
		}
	}
	err := each(ctx, unknown, func(ctx context.Context, object int) (err error) {
		known[object], err = a.get(ctx, object)
		return err
	})
	return known, err
}

// each sends a request for each of the objects, all at once. It tries one again after a failure: a
// lost reply must not cause all ConfigMaps to be read again.
func each(
	ctx context.Context, objects []int, request func(ctx context.Context, object int) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	again := wait.Backoff{Duration: storePause, Factor: 2, Steps: storeTries}
	for _, object := range objects {
		group.Go(func() error {
			return retry.OnError(again, func(err error) bool {
				return ctx.Err() == nil && !apierrors.IsForbidden(err) && !apierrors.IsConflict(err)
			}, func() error {
				ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
				defer cancel()
				return request(ctx, object)
			})
		})
	}
	return group.Wait()
}

// get reads a ConfigMap. It returns nil without an error if the ConfigMap doesn't exist.
func (a api) get(ctx context.Context, object int) (*corev1.ConfigMap, error) {
	name := ObjectName(object)
	live, err := a.client.CoreV1().ConfigMaps(a.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, "configmaps", name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the stored ledger, ConfigMap %s/%s: %w", a.namespace, name, err)
	}
	return live, nil
}

// create makes a ConfigMap without entries. It returns an existing one if that has none either.
func (a api) create(ctx context.Context, object int) (*corev1.ConfigMap, error) {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	live, err := a.client.CoreV1().ConfigMaps(a.namespace).Create(limited, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: ObjectName(object), Namespace: a.namespace,
			Labels: map[string]string{"app.kubernetes.io/part-of": "underlay"},
			Annotations: map[string]string{
				"underlay.dev/about": "Which Node holds which podCIDRs, written before they are handed out. " +
					"Don't delete: allocation stops until it is rebuilt.",
			},
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		// Perhaps only the reply was lost.
		if there, unread := a.get(ctx, object); unread == nil && there != nil && len(there.Data) == 0 {
			return there, nil
		}
		return nil,
			fmt.Errorf("creating the stored ledger, ConfigMap %s/%s: %w", a.namespace, ObjectName(object),
				err)
	}
	return live, nil
}

// writeTimeout leaves time to read whether a write without a reply was applied.
const writeTimeout = attemptTimeout * 2 / 3

// put replaces a ConfigMap if its version is unchanged, and returns the new version. It sends the
// whole object, because the API server merges a patch of thousands of keys several times more
// slowly, and requests only the metadata in the reply, which would be as large.
func (a api) put(ctx context.Context, object *corev1.ConfigMap) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	raw, err := a.client.CoreV1().RESTClient().Put().
		Namespace(a.namespace).Resource("configmaps").Name(object.Name).
		Param("fieldManager", fieldManager).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Body(object).Do(ctx).Raw()
	var reply metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(raw, &reply)
	}
	if err == nil && reply.ResourceVersion == "" {
		err = errors.New("the response has no resourceVersion")
	}
	if err != nil {
		return "",
			fmt.Errorf("writing the stored ledger, ConfigMap %s/%s: %w", a.namespace, object.Name, err)
	}
	return reply.ResourceVersion, nil
}

// A ledgerRequest is one write of the stored ledger.
type ledgerRequest struct {
	write  ipam.Write
	object *corev1.ConfigMap // the desired one, then the current one

	err error // the write may or may not have been applied
}

// request returns the request for a write that is sent now.
func (s Stored) request(w ipam.Write) *ledgerRequest {
	object := *s[w.Object]
	if len(object.ManagedFields) > 0 {
		// They are long with a key per Node, and rebuilt on each write: this disables them.
		object.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	object.Data = w.Entries
	return &ledgerRequest{write: w, object: &object}
}

func (r *ledgerRequest) send(ctx context.Context, a api) {
	version, err := a.put(ctx, r.object)
	if err != nil && !apierrors.IsConflict(err) {
		// Perhaps only the reply was lost.
		if live, unread := a.get(ctx, r.write.Object); unread == nil && live != nil &&
			maps.Equal(live.Data, r.object.Data) {
			r.object, version, err = live, live.ResourceVersion, nil
		}
	}
	if r.err = err; err == nil {
		// The server keeps its own managedFields; only a user's server-side apply adds some.
		r.object.ResourceVersion, r.object.ManagedFields = version, nil
	}
}
