package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Only returns the options to list or watch the single object with this name.
func Only(name string) metav1.ListOptions {
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	return metav1.ListOptions{FieldSelector: byName.String()}
}
