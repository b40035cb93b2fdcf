package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/routes"
)

// Plannable is a Node as package routes sees it, for those who only look.
func Plannable(node *corev1.Node, g routes.Gateways) routes.Node { return plannable(node, g) }
