/** Locks of redlatch over Lettuce or Jedis. */
package dev.redlatch.client;
