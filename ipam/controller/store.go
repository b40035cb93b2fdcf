package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// LedgerName is the ConfigMap in which the ledger is stored.
const LedgerName = "underlay-node-ipam"

// storeTimeout bounds one request to the stored ledger.
const storeTimeout = 30 * time.Second

// store is the ConfigMap that holds the ledger. It decides nothing.
type store struct {
	client    kubernetes.Interface
	namespace string
}

// stored is the ledger as the API server has it.
type stored struct {
	object  *corev1.ConfigMap // without its data; nil: there is no ConfigMap
	entries map[string]string
}

// exists reports whether there is a ConfigMap.
func (s stored) exists() bool { return s.object != nil }

// lost reports whether nothing is stored: there is no ConfigMap, or somebody emptied it. One that
// is in use has an entry for each pool at least.
func (s stored) lost() bool { return len(s.entries) == 0 }

// read gets the ConfigMap as it is now, not as a cache has it. That there is
// none is no error.
func (s store) read(ctx context.Context) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	live, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, LedgerName, metav1.GetOptions{})
	switch {
	case absent(err, "configmaps", LedgerName):
		return stored{}, nil
	case err != nil:
		return stored{}, fmt.Errorf("reading the stored ledger, ConfigMap %s/%s: %w", s.namespace, LedgerName, err)
	}
	return keep(live, live.Data), nil
}

// keep holds the entries apart from the rest of the object.
func keep(live *corev1.ConfigMap, entries map[string]string) stored {
	s := stored{object: live.DeepCopy(), entries: maps.Clone(entries)}
	s.object.Data = nil
	if s.entries == nil {
		s.entries = map[string]string{}
	}
	return s
}

// create makes the ConfigMap, without entries; it fails if there is one already.
func (s store) create(ctx context.Context) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	live, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: LedgerName, Namespace: s.namespace,
			Labels:      map[string]string{"app.kubernetes.io/part-of": "underlay"},
			Annotations: map[string]string{"underlay.dev/about": "Which Node holds which podCIDRs, written before they are handed out. Don't delete: allocation stops until it is rebuilt."},
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return stored{}, fmt.Errorf("creating the stored ledger, ConfigMap %s/%s: %w", s.namespace, LedgerName, err)
	}
	return keep(live, nil), nil
}

// write replaces the ConfigMap if it still has the object's version, and returns its new one. The
// whole goes out, because the API server merges a patch of thousands of keys several times more
// slowly; nothing comes back, because it would be most of a megabyte.
func (s store) write(ctx context.Context, object *corev1.ConfigMap) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	raw, err := s.client.CoreV1().RESTClient().Put().
		Namespace(s.namespace).Resource("configmaps").Name(LedgerName).
		Param("fieldManager", fieldManager).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Body(object).Do(ctx).Raw()
	var answer metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && answer.ResourceVersion == "" {
		err = errors.New("the answer has no resourceVersion")
	}
	if err != nil {
		return "", fmt.Errorf("writing the stored ledger, ConfigMap %s/%s: %w", s.namespace, LedgerName, err)
	}
	return answer.ResourceVersion, nil
}

// untracked is what an object says that wants no record of who set which field: with a key for
// each Node that record is long, and made anew with every write.
func untracked() []metav1.ManagedFieldsEntry { return []metav1.ManagedFieldsEntry{{}} }

// An order is one write of the stored ledger.
type order struct {
	object *corev1.ConfigMap // as it is to be
	keys   []string          // the Nodes for which it differs from what is stored
}

// A receipt is what became of an order.
type receipt struct {
	order   order
	version string // the new one
	err     error  // the write may or may not have been applied
}

// scribe carries out orders, one at a time, until the context ends.
func (s store) scribe(ctx context.Context, orders <-chan order, receipts chan<- receipt) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-orders:
			version, err := s.write(ctx, o.object)
			select {
			case receipts <- receipt{o, version, err}:
			case <-ctx.Done():
				return
			}
		}
	}
}
