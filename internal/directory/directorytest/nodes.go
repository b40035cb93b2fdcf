package directorytest

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Nodes is a fake of directory.Nodes that reads all Nodes directly, without a directory.
type Nodes struct {
	Self string
	// Informer is a Node informer; its owner starts it.
	Informer cache.SharedIndexInformer
}

// Ready returns an error until the informer has synced.
func (n Nodes) Ready() error {
	if !n.Informer.HasSynced() {
		return errors.New("the Nodes have not been read")
	}
	return nil
}

// Own returns the Node of the machine, or nil.
func (n Nodes) Own() *corev1.Node {
	found, _, _ := n.Informer.GetStore().GetByKey(n.Self)
	own, _ := found.(*corev1.Node)
	return own
}

// All returns all Nodes.
func (n Nodes) All() (all []*kube.Node, err error) {
	for _, node := range n.Informer.GetStore().List() {
		all = append(all, kube.NodeOf(node.(*corev1.Node)))
	}
	return all, nil
}

// Subscribe calls own and other as directory.Nodes does.
func (n Nodes) Subscribe(own func(old, now *corev1.Node), other func(name string)) error {
	changed := func(name string, old, now *corev1.Node) {
		switch {
		case name == n.Self:
			own(old, now)
		case old == nil || now == nil || !kube.NodeOf(old).Equal(kube.NodeOf(now)):
			other(name)
		}
	}
	_, err := n.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(obj.(*corev1.Node).Name, nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) {
			changed(obj.(*corev1.Node).Name, old.(*corev1.Node), obj.(*corev1.Node))
		},
		DeleteFunc: func(obj any) {
			name, _ := cache.DeletionHandlingObjectToName(obj)
			changed(name.Name, nil, nil)
		},
	})
	return err
}
